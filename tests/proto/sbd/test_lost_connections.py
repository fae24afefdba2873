"""Client against server in memory, byte for byte, over connections that break anywhere."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from proto.sbd import frames
from proto.sbd.bounds import MAX_MESSAGE_BYTES, RENEWAL_PAUSE_NS
from proto.sbd.e2e import EndToEnd
from proto.sbd.events import Authenticated, Connected, Dropped, Ended, PacketReceived
from proto.sbd.machine import ClientSide, ServerSide, State
from proto.sbd.rate import ByteRate
from proto.websocket.events import InputRefused
from proto.websocket.frames import FrameReader, binary_frames, masked_frame
from tests.proto.sbd.pairs import NONCE, Identity

A, B = Identity(1), Identity(2)
S = 1_000_000_000
MASK = b"mask"
TEXTS = st.lists(st.binary(max_size=300), max_size=8)
CUTS = st.lists(st.integers(1, 200), max_size=10)


@dataclass
class Wire:
    """One direction of a connection: delivers bytes in pieces of any size, until it breaks."""

    breaks_at: int | None = None
    pieces: list[int] = field(default_factory=list)
    passed: int = 0
    _held: bytes = b""

    def write(self, data: bytes) -> None:
        self._held += data

    @property
    def broken(self) -> bool:
        return self.breaks_at is not None and self.passed >= self.breaks_at

    def read(self) -> bytes:
        """Return the next piece, or nothing once the wire is broken."""
        size = self.pieces.pop() if self.pieces else len(self._held)
        if self.breaks_at is not None:
            size = min(size, self.breaks_at - self.passed)
        data, self._held = self._held[:size], self._held[size:]
        self.passed += len(data)
        return data


def whole_frames(held: bytearray) -> list[bytes]:
    """Remove the complete frames of a server from the buffer, and return their payloads."""
    found = []
    while len(held) >= 2:
        start, size = 2, held[1]
        if size == 126:
            start, size = 4, int.from_bytes(held[2:4], "big")
        if len(held) < start + size:
            break
        found.append(bytes(held[start : start + size]))
        del held[: start + size]
    return found


class Connection:
    """A client and its server, until either direction breaks.

    Attributes:
        packets: packets that the server accepted, destination first.
        received: packets that the client received.
        connected: number of times the client reported that it is connected.
    """

    def __init__(self, up: Wire, down: Wire) -> None:
        self.up, self.down = up, down
        self.now = S
        self.client = ClientSide(A.sign, self.now)
        self.server = ServerSide(A.key, NONCE, ByteRate(1).charge)
        self.reader = FrameReader(MAX_MESSAGE_BYTES, takes_text=True)
        self.packets: list[bytes] = []
        self.received: list[PacketReceived] = []
        self.connected = 0
        self._held = bytearray()
        self.server.start(1, self.now)

    def run(self, sends: list[bytes], delivers: list[bytes]) -> None:
        """Send packets to B and deliver packets from B, until all arrive or the wires break."""
        to_send, to_deliver = iter(sends), iter(delivers)
        quiet = 0
        while quiet < 3 and not self.up.broken and not self.down.broken:
            self.now += S // 100
            if self.client.state is State.READY:
                for text in itertools.islice(to_send, 1):
                    self.client.send(B.key, text)
            for message in self.client.data_to_send(self.now):
                self.up.write(masked_frame(message, MASK))
            data = self.up.read()
            self.packets += self.server.receive_messages(self.reader.receive_data(data), self.now)
            for message in self.server.data_to_send():
                self.down.write(binary_frames([message]))
            if self.server.state is State.READY:
                for text in itertools.islice(to_deliver, 1):
                    self.down.write(binary_frames([frames.forward(B.key, text)]))
            back = self.down.read()
            self._held += back
            for message in whole_frames(self._held):
                self.client.receive_data(message, self.now)
            self._look()
            quiet = 0 if data or back or self.client.waits else quiet + 1
        self.client.end()

    def _look(self) -> None:
        while (event := self.client.next_event()) is not None:
            assert not isinstance(event, Ended), event
            if isinstance(event, Connected):
                self.connected += 1
            else:
                self.received.append(event)
        while (said := self.server.next_event()) is not None:
            assert isinstance(said, Authenticated), said


@given(TEXTS, TEXTS, st.integers(0, 1_500), st.integers(0, 1_500), CUTS, CUTS)
def test_a_connection_may_break_at_any_byte(
    sends: list[bytes],
    delivers: list[bytes],
    up_bytes: int,
    down_bytes: int,
    up_pieces: list[int],
    down_pieces: list[int],
) -> None:
    """Whole packets arrive, in order and up to the break; the next connection works as if new."""
    first = Connection(Wire(up_bytes, up_pieces), Wire(down_bytes, down_pieces))
    first.run(sends, delivers)
    sent = [frames.forward(B.key, text) for text in sends]
    due = [PacketReceived(B.key, text) for text in delivers]
    assert first.packets == sent[: len(first.packets)]
    assert first.received == due[: len(first.received)]
    assert first.connected <= 1
    response = len(masked_frame(frames.auth_response(bytes(64)), MASK))
    assert (first.server.state is State.READY) == (first.up.passed >= response)
    if first.received or first.packets:
        assert first.connected == 1
    again = Connection(Wire(pieces=up_pieces), Wire(pieces=down_pieces))
    again.run(sends, delivers)
    assert (again.packets, again.received, again.connected) == (sent, due, 1)


@given(st.binary(max_size=120), st.binary(max_size=120), st.booleans(), CUTS)
def test_any_bytes_before_and_after_the_handshake(
    before: bytes, after: bytes, signs: bool, pieces: list[int]
) -> None:
    """Any bytes, however cut into reads, end alike; packets pass only for a key that has signed."""
    response = masked_frame(frames.auth_response(A.sign(NONCE)), MASK) if signs else b""
    packet = masked_frame(frames.forward(B.key, b"x"), MASK)
    wire = before + response + after + packet
    outcomes = []
    for cuts in ([], list(pieces)):
        reader = FrameReader(MAX_MESSAGE_BYTES, takes_text=True)
        server = ServerSide(A.key, NONCE, ByteRate().charge)
        server.start(8_000, 0)
        way, packets = Wire(pieces=cuts), list[bytes]()
        way.write(wire)
        while data := way.read():
            packets += server.receive_messages(reader.receive_data(data), 0)
        events = []
        while (event := server.next_event()) is not None:
            events.append(event)
        refused = [event.fault for event in reader.events if isinstance(event, InputRefused)]
        if any(isinstance(event, Dropped) for event in events):
            refused = []  # the connection had already ended
        outcomes.append((packets, events, refused))
        if packets:
            assert events[0] == Authenticated()
        assert len(events) + len(refused) <= 2
    assert outcomes[0] == outcomes[1]
    if not before and not after:
        assert bool(outcomes[0][0]) == signs


@given(
    st.lists(
        st.tuples(
            st.booleans(), st.sampled_from(["arrives", "arrives", "lost", "restart", "idle"])
        ),
        max_size=30,
    )
)
def test_encrypted_messages_over_connections_that_break(steps: list[tuple[bool, str]]) -> None:
    """Messages that arrive were sent, and arrive in order and once, even if sides lose their state.

    Both sides send. Once connections hold, the second message of each side arrives.
    """
    numbers = itertools.count()
    identities = (A, B)

    def fresh(own: int) -> EndToEnd:
        secret = identities[own].secret
        return EndToEnd(secret, lambda size: next(numbers).to_bytes(size, "big"), listener=True)

    sides = [fresh(0), fresh(1)]
    received: list[list[int]] = [[], []]
    now = 0

    def carry(own: int, *, lost: bool) -> None:
        for _, payload in sides[own].data_to_send():
            if not lost:
                sides[1 - own].receive_packet(identities[own].key, payload, now)
        while (event := sides[1 - own].next_event()) is not None:
            assert event.key == identities[own].key
            received[1 - own].append(int(event.message))

    count = 0
    for forth, fate in [*steps, *[(True, "arrives"), (False, "arrives")] * 3]:
        own = int(forth)
        now += 20 * RENEWAL_PAUSE_NS if fate == "idle" else RENEWAL_PAUSE_NS
        if fate == "restart":
            sides[own] = fresh(own)
        count += 1
        sides[own].send(identities[1 - own].key, b"%d" % count, now)
        carry(own, lost=fate == "lost")
        carry(1 - own, lost=False)  # it may ask for a new stream
        carry(own, lost=False)
    assert all(each == sorted(set(each)) for each in received)
    assert [each[-1] for each in received] == [count - 1, count]

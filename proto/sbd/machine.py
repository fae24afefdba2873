"""Both sides of a connection, without IO (sheet sections 3, 4 and 5.5).

Pass either side whole websocket messages (`receive_data`), then take the messages to send
(`data_to_send`) and the events for the owner (`next_event`). Times are nanoseconds of a monotonic
clock, and are passed to every call; `next_timer` returns when to call `handle_timer`. Nonces and
signatures come from the owner.

    client                      server
                     <-- lbrt   start()
                     <-- areq
    ares             -->        Authenticated
    Connected        <-- lidl
                     <-- srdy
    send()           -->        PacketReceived; the owner finds the other connection
    PacketReceived   <--        `frames.forward` with the source in it, written by the owner

A server drops a connection at the first error, in the handshake as well: a client whose handshake
failed never sends a packet under a key that it has not proved.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Final

from nacl.bindings import crypto_sign_open
from nacl.exceptions import BadSignatureError

from proto.sbd import frames
from proto.sbd.bounds import (
    DEFAULT_BYTE_NANOS,
    DEFAULT_IDLE_MS,
    HEADER_BYTES,
    KEEP_ALIVE_PART,
    MAX_MESSAGE_BYTES,
    MAX_WAITING_BYTES,
    MIN_IDLE_MS,
    PACE_PERCENT,
    SIGNATURE_BYTES,
)
from proto.sbd.errors import ClosedError, DropReason, FrameError
from proto.sbd.events import (
    Authenticated,
    ClientEvent,
    Connected,
    Dropped,
    Ended,
    PacketReceived,
    ServerEvent,
)

NANOS_PER_MS: Final = 1_000_000

Charge = Callable[[int, int], bool]
"""Function that counts a number of bytes of an address at a time, and returns whether they may
pass."""


class State(Enum):
    """State of a connection, on either side."""

    HANDSHAKE = "handshake"
    READY = "ready"
    ENDED = "ended"


class ServerSide:
    """The server's side of a connection.

    Attributes:
        charge: function that counts what the client sends; may be replaced at any time.
        key: public key under which the connection is opened.
        state: state of the connection; packets may be delivered while it is READY.
    """

    __slots__ = ("_byte_nanos", "_deadline_ns", "_events", "_idle_ms", "_nonce", "_output",
                 "charge", "key", "state")  # fmt: skip

    def __init__(
        self, key: bytes, nonce: bytes, charge: Charge, idle_ms: int = DEFAULT_IDLE_MS
    ) -> None:
        """Create the server's side of a connection.

        Args:
            key: key from the path.
            nonce: 32 random bytes.
            charge: function that counts what the client's address sends, such as `ByteRate.charge`.
            idle_ms: silence that ends the connection, and time-out of the whole handshake.
        """
        self.key = key
        self.state = State.HANDSHAKE
        self._nonce = nonce
        self.charge = charge
        self._idle_ms = idle_ms
        self._byte_nanos = 0  # last value announced to the client
        self._deadline_ns: int | None = None
        self._output: list[bytes] = []
        self._events: deque[ServerEvent] = deque()

    def start(self, byte_nanos: int, now_ns: int) -> None:
        """Begin the handshake, or drop a key that cannot be addressed without sending anything.

        Args:
            byte_nanos: time that each byte takes for now, in nanoseconds.
            now_ns: current time.
        """
        if not frames.is_addressable(self.key):
            self._drop(DropReason.ILLEGAL_KEY)
            return
        self._deadline_ns = now_ns + self._idle_ms * NANOS_PER_MS
        self.announce(byte_nanos)
        self._output.append(frames.auth_request(self._nonce))

    def announce(self, byte_nanos: int) -> None:
        """Send the client the time that each byte takes, if it has changed."""
        if self.state is not State.ENDED and byte_nanos != self._byte_nanos:
            self._byte_nanos = byte_nanos
            self._output.append(frames.limit_byte_nanos(byte_nanos))

    def receive_data(self, message: bytes, now_ns: int) -> None:
        """Handle one message of the client."""
        for packet in self.receive_messages([message], now_ns):
            self._events.append(PacketReceived(packet[:HEADER_BYTES], packet[HEADER_BYTES:]))

    def receive_messages(self, messages: list[bytes], now_ns: int) -> list[bytes]:
        """Handle the messages of one read.

        Returns:
            The packets among them, unchanged and in order; each begins with its destination. They
            are not events, because a loaded server has thousands in one turn of the loop.
        """
        packets: list[bytes] = []
        for message in messages:
            if self.state is State.ENDED:
                break
            size_bytes = len(message)
            if size_bytes > MAX_MESSAGE_BYTES:
                self._drop(DropReason.TOO_LARGE)  # the reference does not charge it
            elif not self.charge(size_bytes, now_ns):
                self._drop(DropReason.RATE_LIMIT)
            elif size_bytes < HEADER_BYTES:
                self._drop(DropReason.TOO_SHORT)
            elif message.startswith(frames.ZEROS):
                self._take_command(message)
            elif self.state is State.READY:
                packets.append(message)
            else:
                self._drop(DropReason.EARLY_FORWARD)
        if messages and self.state is State.READY:
            self._deadline_ns = now_ns + self._idle_ms * NANOS_PER_MS
        return packets

    @property
    def has_news(self) -> bool:
        """Whether there are events, or messages to send."""
        return bool(self._events or self._output)

    def data_to_send(self) -> list[bytes]:
        """Return the messages to send, in order."""
        output, self._output = self._output, []
        return output

    def next_event(self) -> ServerEvent | None:
        """Return the next event, or None."""
        return self._events.popleft() if self._events else None

    def next_timer(self) -> int | None:
        """Return when to call `handle_timer`, or None."""
        return self._deadline_ns

    def handle_timer(self, now_ns: int) -> None:
        """Drop a client that was silent for too long, or did not complete its handshake in time."""
        if self._deadline_ns is not None and now_ns >= self._deadline_ns:
            handshake = self.state is State.HANDSHAKE
            self._drop(DropReason.HANDSHAKE_TIMEOUT if handshake else DropReason.IDLE)

    def _take_command(self, message: bytes) -> None:
        try:
            command = frames.parse_from_client(message)
        except FrameError as error:
            self._drop(error.reason)
            return
        if not isinstance(command, frames.AuthResponse):
            return
        if self.state is State.READY:
            self._drop(DropReason.SECOND_RESPONSE)
        elif not _is_signed(self.key, self._nonce, command.signature):
            self._drop(DropReason.BAD_SIGNATURE)
        else:
            self.state = State.READY
            self._output += (frames.limit_idle(self._idle_ms), frames.READY)
            self._events.append(Authenticated())

    def _drop(self, reason: DropReason) -> None:
        if self.state is not State.ENDED:
            self.state = State.ENDED
            self._deadline_ns = None
            self._output = []
            self._events.append(Dropped(reason))


class ClientSide:
    """The client's side of a connection.

    It keeps to the pace that the server asks for, and sends something whenever half of the idle
    time has passed.

    Attributes:
        state: state of the connection.
    """

    __slots__ = ("_byte_nanos", "_events", "_idle_ms", "_next_send_ns", "_queue", "_quiet_ns",
                 "_sign", "_urgent", "_waiting_bytes", "state")  # fmt: skip

    def __init__(self, sign: Callable[[bytes], bytes], now_ns: int) -> None:
        """Create the client's side of a connection.

        Args:
            sign: function that returns the 64-byte ed25519 signature of a nonce.
            now_ns: current time.
        """
        self.state = State.HANDSHAKE
        self._sign = sign
        self._byte_nanos = DEFAULT_BYTE_NANOS
        self._idle_ms = DEFAULT_IDLE_MS
        self._urgent: list[bytes] = []  # sent at once, but counted for the pace
        self._queue: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._events: deque[ClientEvent] = deque()
        self._next_send_ns = now_ns
        self._quiet_ns = now_ns  # when something was last sent

    @property
    def has_room(self) -> bool:
        """Whether another packet may be queued."""
        return self._waiting_bytes < MAX_WAITING_BYTES

    @property
    def waits(self) -> bool:
        """Whether packets are queued."""
        return bool(self._queue)

    def send(self, key: bytes, payload: bytes) -> None:
        """Queue a packet.

        Raises:
            MessageSizeError: the payload is too long.
            ClosedError: the connection has ended, or is not open yet.
        """
        if self.state is not State.READY:
            raise ClosedError("the connection is not open")
        message = frames.forward(key, payload)
        self._queue.append(message)
        self._waiting_bytes += len(message)

    def end(self) -> None:
        """Record that the connection has ended."""
        self.state = State.ENDED
        self._queue.clear()
        self._urgent.clear()
        self._waiting_bytes = 0

    def receive_data(self, message: bytes, now_ns: int) -> None:
        """Handle one message of the server."""
        if self.state is State.ENDED:
            return
        try:
            frame = frames.parse_from_server(message)
        except FrameError as error:
            self._end(str(error))
            return
        match frame:
            case frames.Forward(key, payload):
                if self.state is State.READY:
                    self._events.append(PacketReceived(key, payload))
                else:
                    self._end("the server sent a packet before it was ready")
            case frames.LimitByteNanos(byte_nanos):
                self._byte_nanos = max(0, byte_nanos)
            case frames.LimitIdle(idle_ms):
                if self._in_handshake("lidl"):
                    self._idle_ms = max(MIN_IDLE_MS, idle_ms)
            case frames.AuthRequest(nonce):
                if self._in_handshake("areq"):
                    self._urgent.append(frames.auth_response(self._sign(nonce)))
            case frames.Ready():
                if self.state is State.HANDSHAKE:
                    self.state = State.READY
                    self._events.append(Connected(self._byte_nanos, self._idle_ms))

    def data_to_send(self, now_ns: int) -> list[bytes]:
        """Return the messages that may be sent now, in order."""
        output, self._urgent = self._urgent, []
        for message in output:
            self._account(message, now_ns)
        while self._queue and self._next_send_ns <= now_ns:
            message = self._queue.popleft()
            self._waiting_bytes -= len(message)
            self._account(message, now_ns)
            output.append(message)
        return output

    def next_event(self) -> ClientEvent | None:
        """Return the next event, or None."""
        return self._events.popleft() if self._events else None

    def next_timer(self) -> int | None:
        """Return when to call `handle_timer`, and `data_to_send` after it; or None."""
        if self.state is not State.READY:
            return None
        keep_alive_ns = self._keep_alive_ns()
        return min(self._next_send_ns, keep_alive_ns) if self._queue else keep_alive_ns

    def handle_timer(self, now_ns: int) -> None:
        """Queue a keep-alive if it is due."""
        if self.state is State.READY and not self._urgent and now_ns >= self._keep_alive_ns():
            self._urgent.append(frames.KEEP_ALIVE)

    def _keep_alive_ns(self) -> int:
        return self._quiet_ns + self._idle_ms * NANOS_PER_MS // KEEP_ALIVE_PART

    def _account(self, message: bytes, now_ns: int) -> None:
        byte_nanos = self._byte_nanos * PACE_PERCENT // 100
        self._next_send_ns = max(now_ns, self._next_send_ns) + len(message) * byte_nanos
        self._quiet_ns = now_ns

    def _in_handshake(self, name: str) -> bool:
        if self.state is State.HANDSHAKE:
            return True
        self._end(f"the server sent {name} after it was ready")
        return False

    def _end(self, text: str) -> None:
        self.end()
        self._events.append(Ended(text))


def _is_signed(key: bytes, nonce: bytes, signature: bytes) -> bool:
    """Return whether a key signed the nonce; False for keys of small order (libsodium)."""
    assert len(signature) == SIGNATURE_BYTES
    try:
        crypto_sign_open(signature + nonce, key)
    except BadSignatureError:
        return False
    return True

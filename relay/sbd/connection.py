"""One SBD connection at its worker: the protocol's machine on a socket.

A read of the socket goes through `ServerSide.receive_messages`; the packets it returns go to the
switch at once, together. Nothing of it awaits.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from proto.sbd.bounds import MAX_MESSAGE_BYTES
from proto.sbd.errors import DropReason
from proto.sbd.events import Authenticated, Dropped
from proto.sbd.machine import ServerSide, State
from relay.sbd.options import EndReason
from relay.server.socket import InputRules, RelaySocket

if TYPE_CHECKING:
    from relay.sbd.addresses import Place
    from relay.sbd.switch import Switch

RULES: Final = InputRules(MAX_MESSAGE_BYTES, takes_text=True, drops=True)
_REFUSED: Final = {"too_large": DropReason.TOO_LARGE}


class Connection:
    """A client's connection; a `relay.server.socket.Receiver`.

    Attributes:
        key: the client's.
        text: of its session's key, once it has an epoch.
        routable: packets for its key are delivered to it.
        address: of the client, for operators.
        opened_at: unix time.
        token: that it was opened with, if any.
        epoch: of its entry in Redis; 0: it has none yet.
        messages_in, bytes_in: packets of its client.
        messages_out, bytes_out: packets that were delivered to it.
        drops: packets from and to it that ended undelivered, as far as this worker knows.
    """

    __slots__ = ("_machine", "_place", "_reason", "_socket", "_switch", "_write_later", "address",
                 "bytes_in", "bytes_out", "drops", "epoch", "key", "messages_in", "messages_out",
                 "opened_at", "routable", "text", "token")  # fmt: skip

    def __init__(
        self,
        switch: Switch,
        key: bytes,
        nonce: bytes,
        socket: RelaySocket,
        place: Place,
        token: str | None = None,
    ) -> None:
        self.key = key
        self.token = token
        self.address = socket.remote
        self.routable = False
        self.opened_at = time.time()
        self.text = ""
        self.epoch = 0
        self.messages_in = self.messages_out = self.bytes_in = self.bytes_out = self.drops = 0
        self._switch = switch
        self._socket = socket
        self._place = place
        self._machine = ServerSide(key, nonce, place.charge, switch.options.idle_ms)
        self._reason: DropReason | EndReason | None = None
        self._write_later = False

    def start(self) -> None:
        """Begin the handshake; the websocket is accepted."""
        if self.ended:
            return  # banned, or the worker stopped, while it was
        self.place = self._place  # whose limit may be another one by now
        self._place.connections.add(self)
        self._switch.place_changed(self._place)
        self._machine.start(self._place.byte_nanos(), time.monotonic_ns())
        self._after()

    @property
    def place(self) -> Place:
        """What its client sends is counted there."""
        return self._place

    @place.setter
    def place(self, place: Place) -> None:
        self._place = place
        self._machine.charge = place.charge

    def move(self, place: Place) -> None:
        """Count what its client sends for another place from now on."""
        if place is not self._place:
            self._place.connections.discard(self)
            self._switch.place_changed(self._place)
            self.place = place
            place.connections.add(self)
            self._switch.place_changed(place)
            self.announce(place.byte_nanos())

    @property
    def ended(self) -> bool:
        """Whether it has been ended."""
        return self._reason is not None

    def next_timer(self) -> int | None:
        """See `ServerSide.next_timer`."""
        return self._machine.next_timer()

    def handle_timer(self, now_ns: int) -> None:
        """Drop it if it was silent for too long."""
        self._machine.handle_timer(now_ns)
        self._after()

    def announce(self, byte_nanos: int) -> None:
        """Tell the client what each byte takes, if that has changed."""
        self._machine.announce(byte_nanos)
        self._write()

    def deliver(self, packets: list[bytes]) -> bool:
        """Write packets of others, source first; False if the client does not read and is dropped.

        Its own handshake is always written before them: see `Switch.authenticated`.
        """
        self._socket.send_messages(packets)
        if self._socket.buffered_bytes() <= self._switch.options.receiver_bytes:
            self.messages_out += len(packets)
            self.bytes_out += sum(map(len, packets))
            return True
        self.drops += len(packets)
        self.end(EndReason.SLOW_READER)
        return False

    def ready(self) -> None:
        """Write the end of the handshake: packets may be delivered from here on."""
        self.routable = True
        self._write()

    def end(self, reason: DropReason | EndReason) -> None:
        """End it at once, without a close frame; does nothing if it has ended."""
        if self._reason is None:
            self._reason = reason
            self._leave()
            self._socket.abort()

    # --- Receiver ---------------------------------------------------------------------------------

    def messages_received(self, messages: list[bytes]) -> None:
        machine = self._machine
        packets = machine.receive_messages(messages, time.monotonic_ns())
        if packets:
            self.messages_in += len(packets)
            self.bytes_in += sum(map(len, packets))
            self._switch.forward(self, packets)
        if machine.has_news:
            self._after()

    def writable(self) -> None:
        """Nothing waits here for room."""

    def closed(self, code: int, detail: str | None) -> None:
        if self._reason is None:
            if detail is not None:
                self._reason = _REFUSED.get(detail, DropReason.PROTOCOL_ERROR)
            else:
                self._reason = EndReason.CLIENT_CLOSE
            self._leave()

    # --- inner workings ---------------------------------------------------------------------------

    def _after(self) -> None:
        """Do what the machine asks for."""
        while (event := self._machine.next_event()) is not None:
            if isinstance(event, Authenticated):
                self._switch.authenticated(self)
            elif isinstance(event, Dropped):
                self.end(event.reason)
        if self._machine.state is State.HANDSHAKE or self.routable:
            self._write()

    def _write(self) -> None:
        if not self.ended and (output := self._machine.data_to_send()):
            self._socket.send_messages(output)

    def _leave(self) -> None:
        self._place.connections.discard(self)
        self._switch.place_changed(self._place)
        assert self._reason is not None
        self._switch.left(self, self._reason)

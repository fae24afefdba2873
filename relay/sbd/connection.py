"""An SBD connection at its worker: joins the protocol's machine to a socket.

Messages of one read go through `ServerSide.receive_messages`, and the packets that it returns go to
the switch at once, together. Nothing in this module awaits.
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
        key: key of the client.
        text: text of its session's key; empty before it has an epoch.
        routable: whether packets for its key are delivered to it.
        address: address of the client, for operators.
        opened_at: Unix time at which it was opened.
        token: token with which it was opened, if any.
        epoch: epoch of its entry in Redis; 0: it has none yet.
        messages_in, bytes_in: packets that its client sent.
        messages_out, bytes_out: packets that were delivered to it.
        drops: packets from and to it that were dropped, as far as this worker knows.
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
        """Begin the handshake, after the websocket was accepted."""
        if self.ended:
            return  # banned, or the worker stopped, meanwhile
        self.place = self._place  # its limit may have changed meanwhile
        self._place.connections.add(self)
        self._switch.place_changed(self._place)
        self._machine.start(self._place.byte_nanos(), time.monotonic_ns())
        self._after()

    @property
    def place(self) -> Place:
        """Place (address or key) for which the client's bytes are counted."""
        return self._place

    @place.setter
    def place(self, place: Place) -> None:
        self._place = place
        self._machine.charge = place.charge

    def move(self, place: Place) -> None:
        """Count the client's bytes for another place from now on."""
        if place is not self._place:
            self._place.connections.discard(self)
            self._switch.place_changed(self._place)
            self.place = place
            place.connections.add(self)
            self._switch.place_changed(place)
            self.announce(place.byte_nanos())

    @property
    def ended(self) -> bool:
        """Whether the connection has ended."""
        return self._reason is not None

    def next_timer(self) -> int | None:
        """Return when to call `handle_timer`; see `ServerSide.next_timer`."""
        return self._machine.next_timer()

    def handle_timer(self, now_ns: int) -> None:
        """Drop the connection if the client was silent for too long."""
        self._machine.handle_timer(now_ns)
        self._after()

    def announce(self, byte_nanos: int) -> None:
        """Send the client the time that each byte takes, if it has changed."""
        self._machine.announce(byte_nanos)
        self._write()

    def deliver(self, packets: list[bytes]) -> bool:
        """Write packets of other clients, source first.

        Returns False if the client does not read, in which case it is dropped. The client's own
        handshake is always written before packets: see `Switch.authenticated`.
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
        """Write the end of the handshake; from now on, packets may be delivered."""
        self.routable = True
        self._write()

    def end(self, reason: DropReason | EndReason) -> None:
        """End the connection at once, without a close frame; do nothing if it has ended."""
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
        """Do nothing: no data waits here for room."""

    def closed(self, code: int, detail: str | None) -> None:
        if self._reason is None:
            if detail is not None:
                self._reason = _REFUSED.get(detail, DropReason.PROTOCOL_ERROR)
            else:
                self._reason = EndReason.CLIENT_CLOSE
            self._leave()

    # --- internals --------------------------------------------------------------------------------

    def _after(self) -> None:
        """Handle events of the machine, and write what it wants to send."""
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

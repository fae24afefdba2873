"""A `MuxSession` on a websocket of the relay's server.

socket.set_rules(input_rules(bounds))
await send({"type": "websocket.accept"})
wire = SocketWire(socket)
session = MuxSession(False, wire, handler, bounds)
wire.start(session)
try:
    await session.ended.wait()
finally:
    await session.close()  # ends the handlers
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from proto.mux.bounds import MAX_HEADER_BYTES, MuxBounds
from proto.websocket.errors import CloseCode
from relay.server.socket import HIGH_WATER_BYTES, InputRules

if TYPE_CHECKING:
    from peer.mux.session import MuxSession
    from relay.server.socket import RelaySocket


def input_rules(bounds: MuxBounds) -> InputRules:
    """Return the input rules of a websocket of streams: all violations have the same close code."""
    max_message_bytes = bounds.stream_bytes + MAX_HEADER_BYTES
    return InputRules(max_message_bytes, text_code=CloseCode.PROTOCOL_ERROR)


class SocketWire:
    """A `peer.mux.session.Wire` and a `relay.server.socket.Receiver`.

    The server answers pings itself, and the relay sends none: the dialling side keeps the
    connection alive. The session is not notified of pings, so `MuxBounds.ping_timeout_ms` must be
    0; `RelaySocket.last_received` shows how long a client has been silent.
    """

    def __init__(self, socket: RelaySocket) -> None:
        self._socket = socket
        self._session: MuxSession | None = None
        self._is_closed = False

    def start(self, session: MuxSession) -> None:
        """Pass received messages to a session from now on; the websocket has been accepted."""
        self._session = session
        self._socket.start(self)

    # --- Wire -------------------------------------------------------------------------------------

    @property
    def is_full(self) -> bool:
        """Whether the kernel does not accept what was passed to it."""
        return self._is_closed or self._socket.buffered_bytes() > HIGH_WATER_BYTES

    def send(self, messages: list[bytes]) -> None:
        """Send binary messages in one write.

        While the kernel does not accept them, nothing is read, because answers would pile up.
        """
        self._socket.send_messages(messages)
        if self.is_full:
            self._socket.pause_reading()

    def ping(self) -> None:
        """Send nothing; the docstring of the class gives the reason."""

    def close(self, code: int, text: str) -> None:
        """Close the websocket."""
        self._socket.close(code, text)

    # --- Receiver ---------------------------------------------------------------------------------

    def messages_received(self, messages: list[bytes]) -> None:
        """Pass the messages of one read to the session."""
        assert self._session is not None
        self._session.messages_received(messages)

    def writable(self) -> None:
        """Continue to read and send."""
        self._socket.resume_reading()
        assert self._session is not None
        self._session.writable()

    def closed(self, code: int, detail: str | None) -> None:
        """Notify the session of the end."""
        self._is_closed = True
        assert self._session is not None
        self._session.wire_ended(detail or f"closed: {code}")

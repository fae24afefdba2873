"""A connection that carries sessions on its streams: joins the protocol's machine to a socket.

Everything to send in one turn of the event loop is written at once at its end: messages of several
sessions, and acknowledgements. While the client's kernel accepts nothing more, nothing is taken
from the streams and nothing is read. The waiting bytes of each session are limited; further
messages stay in its queue.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from proto.mux.bounds import NORMAL_CLOSURE
from proto.mux.connection import MuxConnection
from proto.mux.errors import StreamStateError
from proto.mux.events import (
    Acknowledged,
    CloseDue,
    Event,
    FailReason,
    HalfFailed,
    PingDue,
    Readable,
    ReadEnded,
    StreamEnded,
    StreamOpened,
)
from proto.mux.stream import WriteState
from proto.rmb.reasons import SessionReason
from proto.websocket.budget import MessageBudget
from relay.mux.stream_socket import State, StreamSocket
from relay.server.socket import HIGH_WATER_BYTES

if TYPE_CHECKING:
    from relay.mux.options import MuxOptions
    from relay.mux.server import MuxServer
    from relay.server.socket import RelaySocket

TAKE_BYTES: Final = 128 * 1024
"""Bytes of streams that are passed to the socket between two checks whether it is full."""


class Connection:
    """A client's connection; a `relay.server.socket.Receiver`.

    Attributes:
        number: number of the connection at this worker.
        address: address of the client, without a port.
        user_agent: User-Agent header of the client.
        opened_at: Unix time at which it was opened.
        mux: machine of the protocol.
        sockets: sockets of the streams, by stream id.
        has_signed_in: whether a stream of it has ever signed in.
        empty_since: loop time since which it has no streams, if it has none.
        is_over_bounds: whether more bytes wait for its sessions, or for all, than allowed.
    """

    def __init__(
        self,
        server: MuxServer,
        number: int,
        socket: RelaySocket,
        address: str,
        user_agent: str,
    ) -> None:
        self.number = number
        self.address = address
        self.remote = socket.remote
        self.user_agent = user_agent
        self.opened_at = time.time()
        self.options: MuxOptions = server.options
        self.budget: MessageBudget = server.budget
        self.mux = MuxConnection(False, time.monotonic_ns(), server.options.bounds)
        self.sockets: dict[int, StreamSocket] = {}
        self.has_signed_in = False
        self.is_over_bounds = False
        self._server = server
        self._socket = socket
        self._loop = asyncio.get_running_loop()
        self.empty_since = self._loop.time()
        self._is_flushing = False
        self._timer: asyncio.TimerHandle | None = None
        self._due_ns: int | None = None
        self._waiting: set[StreamSocket] = set()  # written to, not yet known to have room
        self._reason = ""  # why the connection ends

    # --- for the server ---------------------------------------------------------------------------

    @property
    def last_received(self) -> float:
        """Loop time at which data was last received; see `RelaySocket`."""
        return self._socket.last_received

    @property
    def is_full(self) -> bool:
        """Whether too many bytes wait because the client's kernel accepts nothing more."""
        return self._socket.buffered_bytes() > HIGH_WATER_BYTES

    @property
    def unsent_bytes(self) -> int:
        """Number of bytes that the client's kernel has not accepted yet."""
        return self._socket.buffered_bytes()

    @property
    def buffered_bytes(self) -> int:
        """Number of bytes that wait for its sessions, in both directions, and in its socket."""
        waiting = sum(each.waiting_bytes for each in self.sockets.values())
        return waiting + self._socket.buffered_bytes()

    def end(self, reason: str, code: int = NORMAL_CLOSURE) -> None:
        """End the connection and its sessions, which clients may open again elsewhere at once."""
        if not self.mux.is_closed:
            self._reason = reason
            self.mux.close(code, reason)
            self._hear()

    # --- Receiver ---------------------------------------------------------------------------------

    def messages_received(self, messages: list[bytes]) -> None:
        self.mux.receive_messages(messages, time.monotonic_ns())
        self._hear()
        self.flush_soon()

    def writable(self) -> None:
        self._socket.resume_reading()
        self.flush_soon()

    def closed(self, code: int, detail: str | None) -> None:
        if not self._reason:
            self._reason = detail or "client_close"
        self.mux.connection_lost()
        self._hear()
        if self._timer is not None:
            self._timer.cancel()
        self._server.left(self, self._reason)

    # --- for its sockets --------------------------------------------------------------------------

    def soon(self, call: Callable[..., object], *arguments: Any) -> None:
        """Call a function in the next turn of the loop."""
        self._loop.call_soon(call, *arguments)

    def read(self, stream_id: int) -> bytes:
        """Return the bytes received on a stream; none if it has ended meanwhile."""
        try:
            data = self.mux.read(stream_id, self.options.bounds.stream_bytes)
        except StreamStateError:
            return b""
        if data:
            self.flush_soon()
        return data

    def written_to(self, socket: StreamSocket) -> None:
        """Record that bytes were written to a stream."""
        self._waiting.add(socket)
        self.flush_soon()

    def end_stream(self, socket: StreamSocket) -> None:
        """End a stream after the written bytes, and read nothing more."""
        if socket.stream.writing is WriteState.OPEN:
            self.mux.end(socket.id, time.monotonic_ns())
        self.mux.cancel(socket.id)
        self.flush_soon()

    def finish(self, socket: StreamSocket, code: int) -> None:
        """End a stream with a close code, and discard what waits to be sent."""
        self._server.finished(self, socket, code)
        if code == NORMAL_CLOSURE and socket.drained():
            self.end_stream(socket)
        else:
            self.mux.abort(socket.id, code)
            self.mux.cancel(socket.id, code)
            self.flush_soon()

    def linger(self, socket: StreamSocket) -> None:
        """Notify a socket when all is acknowledged, or when the time for it is over."""
        socket.stream.wants_acknowledgement = True
        self._server.lingering.add(socket, socket.finish_closing, self._loop)

    def flush_soon(self) -> None:
        """Schedule a flush at the end of this turn of the loop."""
        if not self._is_flushing:
            self._is_flushing = True
            self._loop.call_soon(self._flush)

    # --- details ----------------------------------------------------------------------------------

    def _flush(self) -> None:
        self._is_flushing = False
        now_ns = time.monotonic_ns()
        mux, socket = self.mux, self._socket
        while not mux.is_closed and mux.has_data_to_send:
            if socket.buffered_bytes() > HIGH_WATER_BYTES:
                socket.pause_reading()  # answers to what is read would pile up
                break
            if messages := mux.data_to_send(now_ns, TAKE_BYTES):
                socket.send_messages(messages)
        self._hear()
        if self._waiting:
            self._waiting = {each for each in self._waiting if not each.has_room()}
        self._arm()

    def _arm(self) -> None:
        due_ns = self.mux.next_timer()
        if due_ns == self._due_ns and self._timer is not None:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._due_ns = due_ns
        if due_ns is not None:
            wait_s = max(0.0, (due_ns - time.monotonic_ns()) / 1e9)
            self._timer = self._loop.call_later(wait_s, self._time_came)

    def _time_came(self) -> None:
        self._timer = None
        self.mux.handle_timer(time.monotonic_ns())
        self._flush()

    def _hear(self) -> None:
        next_event = self.mux.next_event
        while (event := next_event()) is not None:
            self._take(event)

    def _take(self, event: Event) -> None:
        match event:
            case StreamOpened(stream_id):
                with contextlib.suppress(StreamStateError):  # ended by the same read
                    socket = StreamSocket(self, self.mux.stream(stream_id))
                    self.sockets[stream_id] = socket
                    self._server.opened(self, socket)
            case CloseDue(code, text, violation):
                self._reason = self._reason or (violation or "protocol_error")
                self._socket.close(code, text)
            case PingDue():
                pass  # the client sends pings
            case _:
                if (known := self.sockets.get(event.stream_id)) is not None:
                    self._tell(known, event)

    def _tell(self, socket: StreamSocket, event: Event) -> None:
        match event:
            case Readable():
                if socket.state is State.SIGNING_IN:
                    self._take_token(socket)
                else:
                    socket.readable()
            case Acknowledged():
                socket.finish_closing()
            case ReadEnded():
                socket.read_ended()
            case HalfFailed(_, half, code, reason):
                socket.failed(half, code, reason)
                if reason is FailReason.PEER:
                    self._server.reset("client", code)
            case StreamEnded():
                del self.sockets[socket.id]
                self.empty_since = self._loop.time()

    def _take_token(self, socket: StreamSocket) -> None:
        try:
            token = socket.take_token()
        except ValueError as error:
            text = f"invalid jwt: {error}"
            self._server.refuse(socket, 401, text, SessionReason.UNAUTHORIZED)
            return
        if token is not None:
            self._server.sign_in(self, socket, token)

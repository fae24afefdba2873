"""A connection of streams on an event loop, over any websocket.

What comes in one turn of the loop is answered in one write at its end: fewer packets, and the
machine wants to see all of a read before it accepts streams.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, Protocol

from peer.mux.stream import MuxStream, StreamFailedError
from proto.mux.bounds import NORMAL_CLOSURE, PROTOCOL_ERROR, MuxBounds
from proto.mux.connection import MuxConnection
from proto.mux.errors import MuxError
from proto.mux.events import (
    Acknowledged,
    CloseDue,
    Drained,
    Event,
    FailReason,
    HalfFailed,
    PingDue,
    Readable,
    ReadEnded,
    StreamAccepted,
    StreamEnded,
    StreamOpened,
)

logger = logging.getLogger(__name__)

TAKE_BYTES: Final = 128 * 1024
"""Of streams that are handed to the websocket at once, between looks at whether it is full."""

MAX_WAITING_FRAMES: Final = 100_000
"""That answer the other side while it takes none of them."""

DRAIN_S: Final = 10.0
"""For the other side to end a stream of which nothing more is wanted."""

Handler = Callable[[MuxStream], Awaitable[None]]


class ConnectionEndedError(MuxError):
    """The connection has ended, or could not be made."""


class Wire(Protocol):
    """A websocket, as far as a session needs it."""

    @property
    def is_full(self) -> bool:
        """Whether so much is unsent that nothing more is to be handed over."""

    def send(self, messages: list[bytes]) -> None:
        """Send binary messages in one write."""

    def ping(self) -> None:
        """Send a ping."""

    def close(self, code: int, text: str) -> None:
        """Close it."""


class MuxSession:
    """One side of a connection.

    Attributes:
        mux: the machine.
    """

    def __init__(
        self,
        is_client: bool,
        wire: Wire,
        handler: Handler | None = None,
        bounds: MuxBounds | None = None,
    ) -> None:
        """
        Args:
            is_client: whether this side dialled.
            wire: an open websocket.
            handler: is run in a task for each stream of the other side, which ends with it;
                without one they are refused.
            bounds: of the connection.
        """
        self.mux = MuxConnection(is_client, self.now_ns(), bounds)
        self._wire = wire
        self._handler = handler
        self._loop = asyncio.get_running_loop()
        self._streams: dict[int, MuxStream] = {}
        self._opening: dict[int, asyncio.Future[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_flushing = False
        self._timer: asyncio.TimerHandle | None = None
        self._why = "the connection has ended"
        self.ended = asyncio.Event()
        self._arm()

    @staticmethod
    def now_ns() -> int:
        """The clock of the machine."""
        return time.monotonic_ns()

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[MuxStream]:
        """Open a stream for the length of the block.

        Raises:
            StreamFailedError: the other side refused it, or did not accept it in time.
            ConnectionEndedError: the connection has ended.
        """
        async with await self.open_stream() as stream:
            yield stream

    async def open_stream(self) -> MuxStream:
        """Open a stream, and return it when the other side has accepted it.

        Raises:
            StreamFailedError: the other side refused it, or did not accept it in time.
            ConnectionEndedError: the connection has ended.
        """
        if self.mux.is_closed:
            raise ConnectionEndedError(self._why)
        stream_id = self.mux.open_stream(self.now_ns())
        stream = self._streams[stream_id] = MuxStream(self, stream_id, True)
        accepted = self._opening[stream_id] = self._loop.create_future()
        self.flush_soon()
        try:
            await accepted
        except asyncio.CancelledError:
            stream.abort()
            stream.cancel()
            raise
        finally:
            self._opening.pop(stream_id, None)
        return stream

    def drain_later(self, stream: MuxStream) -> None:
        """Read what still comes on a stream, in the background, so that it can end."""
        task = self._loop.create_task(self._drain(stream))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self, code: int = NORMAL_CLOSURE, text: str = "") -> None:
        """End the connection, and return when it has; handlers are cancelled."""
        self.mux.close(code, text)
        self._hear()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.ended.wait()

    def flush_soon(self) -> None:
        """Hand over what may be sent at the end of this turn of the loop."""
        if not self._is_flushing:
            self._is_flushing = True
            self._loop.call_soon(self._flush)

    # --- told by the wire -------------------------------------------------------------------------

    def message_received(self, message: bytes | str) -> None:
        """A message came."""
        self.mux.receive_data(message, self.now_ns())
        self._hear()
        self.flush_soon()

    def ping_received(self) -> None:
        """A ping came; the wire answers it."""
        self.mux.receive_ping(self.now_ns())

    def pong_received(self) -> None:
        """A pong came."""
        self.mux.receive_pong(self.now_ns())

    def writable(self) -> None:
        """The wire is not full any more."""
        self.flush_soon()

    def wire_ended(self, why: str) -> None:
        """The websocket has ended."""
        if not self.mux.is_closed:
            self._why = why
        self.mux.connection_lost()
        self._hear()
        if self._timer is not None:
            self._timer.cancel()
        self.ended.set()

    # --- details ----------------------------------------------------------------------------------

    def _flush(self) -> None:
        self._is_flushing = False
        now_ns = self.now_ns()
        while not self._wire.is_full and not self.mux.is_closed:
            messages = self.mux.data_to_send(now_ns, TAKE_BYTES)
            if not messages:
                break
            self._wire.send(messages)
        if self.mux.waiting_frames > MAX_WAITING_FRAMES:
            self.mux.close(PROTOCOL_ERROR, "the other side takes no answers")
        self._hear()
        self._arm()

    def _arm(self) -> None:
        due_ns = self.mux.next_timer()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if due_ns is not None:
            wait_s = max(0.0, (due_ns - self.now_ns()) / 1e9)
            self._timer = self._loop.call_later(wait_s, self._time_came)

    def _time_came(self) -> None:
        self._timer = None
        self.mux.handle_timer(self.now_ns())
        self._hear()
        self._flush()

    def _hear(self) -> None:
        while (event := self.mux.next_event()) is not None:
            self._take(event)

    def _take(self, event: Event) -> None:
        match event:
            case Readable(stream_id):
                self._streams[stream_id].told_readable()
            case ReadEnded(stream_id):
                self._streams[stream_id].told_end()
            case Drained(stream_id):
                self._streams[stream_id].told_drained()
            case Acknowledged(stream_id):
                self._streams[stream_id].told_acknowledged()
            case StreamOpened(stream_id):
                self._begin(stream_id)
            case StreamAccepted(stream_id):
                self._opened(stream_id, None)
            case HalfFailed(stream_id, half, code, reason):
                self._streams[stream_id].told_failure(half, code, reason)
                self._opened(stream_id, StreamFailedError(half, code, reason))
            case StreamEnded(stream_id):
                self._streams.pop(stream_id, None)
                self._opened(stream_id, None)
            case PingDue():
                self._wire.ping()
            case CloseDue(code, text):
                self._why = f"closed here: {code} {text}".rstrip()
                self._wire.close(code, text)

    def _begin(self, stream_id: int) -> None:
        stream = self._streams[stream_id] = MuxStream(self, stream_id, False)
        if self._handler is None:
            self.mux.refuse(stream_id)
            return
        task = self._loop.create_task(self._serve(self._handler, stream))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, handler: Handler, stream: MuxStream) -> None:
        try:
            async with stream:
                await handler(stream)
        except StreamFailedError as error:
            logger.debug("stream %d: %s", stream.id, error)
        except Exception:
            logger.exception("the handler of stream %d failed", stream.id)

    async def _drain(self, stream: MuxStream) -> None:
        with contextlib.suppress(StreamFailedError, TimeoutError):
            async with asyncio.timeout(DRAIN_S):
                async for _ in stream:
                    pass
        stream.cancel()

    def _opened(self, stream_id: int, failure: StreamFailedError | None) -> None:
        accepted = self._opening.get(stream_id)
        if accepted is None or accepted.done():
            return
        if failure is None:
            accepted.set_result(None)
        elif failure.reason is FailReason.CONNECTION:
            accepted.set_exception(ConnectionEndedError(self._why))
        else:
            accepted.set_exception(failure)

"""A connection with streams on an event loop, over any websocket.

Answers to the messages of one turn of the loop are sent in one write at the end of the turn: this
needs fewer packets, and the state machine must see all of a read before it accepts streams.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Protocol

from peer.mux.errors import ConnectionEndedError, StreamFailedError
from peer.mux.stream import MuxStream
from proto.mux.bounds import NORMAL_CLOSURE, PROTOCOL_ERROR, MuxBounds
from proto.mux.connection import MuxConnection
from proto.mux.errors import StreamStateError
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
from proto.mux.stream import Stream

logger = logging.getLogger(__name__)

TAKE_BYTES: Final = 128 * 1024
"""Bytes of streams that are passed to the websocket between checks whether it is full."""

MAX_WAITING_FRAMES: Final = 100_000
"""Maximum number of waiting answer frames while the other side accepts none of them."""

DRAIN_S: Final = 10.0
"""Seconds that the other side may take to end a stream whose data is no longer needed."""

Handler = Callable[[MuxStream], Coroutine[Any, Any, None]]


class Wire(Protocol):
    """The part of a websocket's interface that a session needs."""

    @property
    def is_full(self) -> bool:
        """Whether so much is unsent that no more data should be passed on."""

    def send(self, messages: list[bytes]) -> None:
        """Send binary messages in one write."""

    def ping(self) -> None:
        """Send a ping."""

    def close(self, code: int, text: str) -> None:
        """Close the websocket."""


class _Opening:
    """A stream for the duration of a block."""

    def __init__(self, session: MuxSession) -> None:
        self._session = session

    async def __aenter__(self) -> MuxStream:
        self._stream = await self._session.open_stream()
        return self._stream

    async def __aexit__(self, kind: type[BaseException] | None, *error: object) -> None:
        self._stream.leave(kind is not None)


class MuxSession:
    """One side of a connection.

    Attributes:
        mux: the state machine of the connection.
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
            is_client: whether this side opened the connection.
            wire: an open websocket.
            handler: runs in a task for each stream that the other side opens; the stream ends with
                it. Without a handler these streams are refused.
            bounds: limits of the connection.
        """
        self.mux = MuxConnection(is_client, self.now_ns(), bounds)
        self._wire = wire
        self._handler = handler
        self._loop = asyncio.get_running_loop()
        self._streams: dict[int, MuxStream] = {}
        self._opening: dict[int, asyncio.Future[None]] = {}
        self._serving: dict[asyncio.Task[None], MuxStream] = {}
        self._served = self._ended  # one bound method for all streams
        self._is_flushing = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ns = 0
        self._draining: deque[tuple[float, MuxStream]] = deque()  # with the deadline of each
        self._drain_timer: asyncio.TimerHandle | None = None
        self._why = "the connection has ended"
        self.ended = asyncio.Event()
        self._arm()

    @staticmethod
    def now_ns() -> int:
        """Return the time of the clock that the state machine uses, in nanoseconds."""
        return time.monotonic_ns()

    def open(self) -> AbstractAsyncContextManager[MuxStream]:
        """Open a stream for the duration of the block.

        Raises:
            StreamFailedError: the other side refused it, or did not accept it in time.
            ConnectionEndedError: the connection has ended.
        """
        return _Opening(self)

    async def open_stream(self) -> MuxStream:
        """Open a stream; return it once the other side has accepted it.

        Raises:
            StreamFailedError: the other side refused it, or did not accept it in time.
            ConnectionEndedError: the connection has ended.
        """
        if self.mux.is_closed:
            raise ConnectionEndedError(self._why)
        stream_id = self.mux.open_stream(self.now_ns())
        stream = self._streams[stream_id] = MuxStream(self, self.mux.stream(stream_id))
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
        """Discard what still arrives on a stream, so that it can end, for up to `DRAIN_S`."""
        stream.discard()
        draining, streams = self._draining, self._streams
        while draining and draining[0][1].id not in streams:
            draining.popleft()
        if stream.id in streams:
            draining.append((self._loop.time() + DRAIN_S, stream))
            if self._drain_timer is None:
                self._drain_timer = self._loop.call_later(DRAIN_S, self._drain_ended)

    def new_future(self) -> asyncio.Future[None]:
        """Return a future of this loop."""
        return self._loop.create_future()

    def settle(self, core: Stream) -> None:
        """Settle a stream that was read to its end."""
        self.mux.settle(core)
        self.flush_soon()

    async def close(self, code: int = NORMAL_CLOSURE, text: str = "") -> None:
        """End the connection, and wait until it has ended; handlers are cancelled."""
        self.mux.close(code, text)
        self._hear()
        tasks = list(self._serving)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.ended.wait()

    def flush_soon(self) -> None:
        """Pass on the data that may be sent at the end of this turn of the loop."""
        if not self._is_flushing:
            self._is_flushing = True
            self._loop.call_soon(self._flush)

    # --- frames from the wire ---------------------------------------------------------------------

    def message_received(self, message: bytes | str) -> None:
        """Process one message."""
        self.messages_received((message,))

    def messages_received(self, messages: Iterable[bytes | str]) -> None:
        """Process the messages of one read."""
        self.mux.receive_messages(messages, self.now_ns())
        self._hear()
        self.flush_soon()

    def ping_received(self) -> None:
        """Process a ping, which the wire answers."""
        self.mux.receive_ping(self.now_ns())

    def pong_received(self) -> None:
        """Process a pong."""
        self.mux.receive_pong(self.now_ns())

    def writable(self) -> None:
        """Continue to send: the wire is no longer full."""
        self.flush_soon()

    def wire_ended(self, why: str) -> None:
        """Handle the end of the websocket."""
        if not self.mux.is_closed:
            self._why = why
        self.mux.connection_lost()
        self._hear()
        for timer in (self._timer, self._drain_timer):
            if timer is not None:
                timer.cancel()
        self._draining.clear()
        self.ended.set()

    # --- details ----------------------------------------------------------------------------------

    def _flush(self) -> None:
        self._is_flushing = False
        mux, now_ns = self.mux, self.now_ns()
        while mux.has_data_to_send and not self._wire.is_full and not mux.is_closed:
            messages = mux.data_to_send(now_ns, TAKE_BYTES)
            if messages:
                self._wire.send(messages)
        if mux.waiting_frames > MAX_WAITING_FRAMES:
            mux.close(PROTOCOL_ERROR, "the other side takes no answers")
        self._hear()
        self._arm()

    def _arm(self) -> None:
        """Set a timer for the next event; a timer that fires early is harmless, and set again."""
        due_ns = self.mux.next_timer()
        if due_ns is None or (self._timer is not None and self._timer_ns <= due_ns):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ns = due_ns
        wait_s = max(0.0, (due_ns - self.now_ns()) / 1e9)
        self._timer = self._loop.call_later(wait_s, self._time_came)

    def _time_came(self) -> None:
        self._timer = None
        self.mux.handle_timer(self.now_ns())
        self._hear()
        self._flush()

    def _hear(self) -> None:
        next_event, streams = self.mux.next_event, self._streams
        while (event := next_event()) is not None:
            kind = type(event)
            if kind is CloseDue or kind is PingDue:
                self._do(event)
            elif kind is StreamOpened:
                self._begin(event.stream_id)  # type: ignore[union-attr]
            elif (stream := streams.get(event.stream_id)) is None:  # type: ignore[union-attr]
                pass  # it was opened and ended in the same read
            elif kind is Readable or kind is ReadEnded:
                stream.told_news()
            elif kind is Drained:
                stream.told_drained()
            else:
                self._tell(stream, event)

    def _do(self, event: Event) -> None:
        match event:
            case PingDue():
                self._wire.ping()
            case CloseDue(code, text):
                self._why = f"closed here: {code} {text}".rstrip()
                self._wire.close(code, text)

    def _tell(self, stream: MuxStream, event: Event) -> None:
        match event:
            case Acknowledged():
                stream.told_acknowledged()
            case StreamAccepted():
                self._opened(stream.id, None)
            case HalfFailed(_, half, code, reason):
                stream.told_failure(half, code, reason)
                self._opened(stream.id, StreamFailedError(half, code, reason))
            case StreamEnded():
                del self._streams[stream.id]
                self._opened(stream.id, None)

    def _begin(self, stream_id: int) -> None:
        try:
            machine = self.mux.stream(stream_id)
        except StreamStateError:
            return  # it has ended in the same read
        stream = self._streams[stream_id] = MuxStream(self, machine)
        if self._handler is None:
            self.mux.refuse(stream_id)
            return
        task = self._loop.create_task(self._handler(stream), name="stream")
        self._serving[task] = stream
        task.add_done_callback(self._served)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """End a stream whose handler is done.

        This is a callback: a coroutine that waits for each handler would be too costly for many
        streams.
        """
        stream = self._serving.pop(task)
        error = None if task.cancelled() else task.exception()
        with contextlib.suppress(StreamFailedError):
            stream.leave(error is not None or task.cancelled())
        if isinstance(error, StreamFailedError):
            logger.debug("stream %d: %s", stream.id, error)
        elif error is not None:
            logger.error("the handler of stream %d failed", stream.id, exc_info=error)

    def _drain_ended(self) -> None:
        """Cancel reading of streams that did not end in time."""
        self._drain_timer = None
        now = self._loop.time()
        while self._draining:
            due, stream = self._draining[0]
            if stream.id in self._streams:
                if due > now:
                    self._drain_timer = self._loop.call_at(due, self._drain_ended)
                    return
                stream.cancel()
            self._draining.popleft()

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

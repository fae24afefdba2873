"""One stream, as applications use it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, Self

from peer.mux.errors import StreamFailedError
from proto.mux.events import FailReason
from proto.mux.frames import Half
from proto.mux.stream import ReadState, Stream, WriteState

if TYPE_CHECKING:
    from peer.mux.session import MuxSession

HIGH_WATER_BYTES: Final = 256 * 1024
"""Unsent bytes above which `write` waits."""
READ_BYTES: Final = 64 * 1024


class MuxStream:
    """A stream of a session. Applications do not create it themselves.

    As a context manager it ends writing after its block, and cancels reading if that has not ended
    yet; after an exception it gives up both.

    Attributes:
        session: session of the stream.
    """

    # Futures and events are created when a task waits for them: an idle stream is small.
    __slots__ = ("_core", "_failed", "_has_failed", "_is_acknowledged", "_is_discarding", "_news",
                 "_on_failure", "_room", "session")  # fmt: skip

    def __init__(self, session: MuxSession, core: Stream) -> None:
        """
        Args:
            session: session of the stream.
            core: state machine of the stream.
        """
        self.session = session
        self._core = core
        self._news: asyncio.Future[None] | None = None  # done when there is data, or the end
        self._room: asyncio.Event | None = None  # set when all was sent, or sending has failed
        self._is_acknowledged: asyncio.Event | None = None  # set when all was read, or failed
        self._has_failed: asyncio.Event | None = None
        self._on_failure: Callable[[Half, StreamFailedError], None] | None = None
        self._failed: dict[Half, StreamFailedError] | None = None
        self._is_discarding = False  # whether received data is discarded

    @property
    def id(self) -> int:
        """Id of the stream."""
        return self._core.id

    @property
    def is_ours(self) -> bool:
        """Whether this side opened the stream."""
        return self._core.is_ours

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *error: object) -> None:
        self.leave(kind is not None)

    def leave(self, has_failed: bool) -> None:
        """End what the application has not ended, as after its block.

        Raises:
            StreamFailedError: the other side had given up reading.
        """
        if has_failed:
            self.abort()
        elif self._failed is None or Half.WRITE not in self._failed:
            self.end_now()
        if not (self._is_discarding or self.is_at_end):
            self.cancel()

    async def write(self, data: bytes) -> None:
        """Write bytes; wait while much is unsent, until the other side reads.

        Raises:
            StreamFailedError: the other side has stopped reading, or the connection has ended.
            StreamStateError: writing was ended here.
        """
        self.write_now(data)
        if self._core.queued_bytes > HIGH_WATER_BYTES:
            await self.drain()

    def write_now(self, data: bytes) -> None:
        """Write bytes without waiting, however much is unsent.

        Raises: as for `write`.
        """
        if self._failed is not None:
            self._check(Half.WRITE)
        self._core.write(data)
        self.session.flush_soon()

    async def drain(self) -> None:
        """Wait until all written data has been sent.

        Raises:
            StreamFailedError: the data could not be sent.
        """
        while self._core.queued_bytes:
            self._check(Half.WRITE)
            if self._room is None:
                self._room = asyncio.Event()
            self._room.clear()
            await self._room.wait()
        self._check(Half.WRITE)

    async def acknowledged(self) -> None:
        """Wait until the other side has read all written data.

        Raises:
            StreamFailedError: a half of the stream has failed.
        """
        if self._is_acknowledged is None:
            self._is_acknowledged = asyncio.Event()
        self._is_acknowledged.clear()
        self._check(Half.WRITE)
        self.session.mux.tell_acknowledged(self.id)
        await self._is_acknowledged.wait()
        for failed in (self._failed or {}).values():
            raise failed

    async def failed(self) -> tuple[Half, StreamFailedError]:
        """Wait until a half of the stream has failed; return the half and its error."""
        if self._failed is None:
            if self._has_failed is None:
                self._has_failed = asyncio.Event()
            await self._has_failed.wait()
        assert self._failed is not None
        return next(iter(self._failed.items()))

    def call_on_failure(self, call: Callable[[Half, StreamFailedError], None] | None) -> None:
        """Set the function to call when a half fails from now on; None removes it."""
        self._on_failure = call

    async def end(self) -> None:
        """End writing; the other side reads all data before that. Further calls have no effect.

        Raises:
            StreamFailedError: the other side has stopped reading, or the connection has ended.
        """
        self.end_now()

    def end_now(self) -> None:
        """End writing, like `end`, without a coroutine."""
        if self._failed is not None:
            self._check(Half.WRITE)
        if self._core.writing is WriteState.OPEN:
            self.session.mux.end(self.id, self.session.now_ns())
            self.session.flush_soon()

    def read(self, size: int = READ_BYTES) -> Coroutine[Any, Any, bytes]:
        """Return 1 to `size` bytes, or no bytes at the end.

        Raises:
            StreamFailedError: the other side has aborted writing, or the connection has ended.
            RuntimeError: another task is reading.
        """
        return self._next(size, False)

    def __aiter__(self) -> Self:
        return self

    def __anext__(self) -> Coroutine[Any, Any, bytes]:
        return self._next(READ_BYTES, True)

    async def _next(self, size: int, is_iterating: bool) -> bytes:
        """Read: one coroutine for both interfaces, as most streams wait in it."""
        core = self._core
        while not core.held_bytes:
            if self._failed is not None:
                self._check(Half.READ)
            if core.reading is not ReadState.OPEN:
                if is_iterating:
                    raise StopAsyncIteration
                return b""
            if self._news is not None:
                raise RuntimeError(f"stream {self.id} is being read by another task")
            self._news = self.session.new_future()
            try:
                await self._news
            finally:
                self._news = None
        data = core.read(size)
        if core.reading is not ReadState.OPEN:
            self.session.settle(core)
        self.session.flush_soon()
        return data

    async def read_all(self) -> bytes:
        """Return all data up to the end.

        Raises:
            StreamFailedError: as for `read`.
        """
        return b"".join([part async for part in self])

    def abort(self, code: int = 0) -> None:
        """Abort writing: unsent data is discarded. No effect after the end.

        Raises:
            ValueError: the code is not between 0 and 2^62 - 1.
        """
        self.session.mux.abort(self.id, code)
        self.session.flush_soon()

    def cancel(self, code: int = 0) -> None:
        """Cancel reading: a task that waits in `read` gets no more data. No effect after the end.

        Raises:
            ValueError: the code is not between 0 and 2^62 - 1.
        """
        self.session.mux.cancel(self.id, code)
        self.told_news()
        self.session.flush_soon()

    @property
    def is_at_end(self) -> bool:
        """Whether all data was read, and no more can come."""
        return self._core.reading is not ReadState.OPEN and not self._core.held_bytes

    def discard(self) -> None:
        """Read and discard data that still arrives."""
        self._is_discarding = True
        if self._core.held_bytes:
            self.told_news()

    # --- events of the session --------------------------------------------------------------------

    def told_news(self) -> None:
        if self._is_discarding:
            self._core.read(self._core.held_bytes)
            self.session.settle(self._core)
            self.session.flush_soon()
        elif self._news is not None and not self._news.done():
            self._news.set_result(None)

    def told_drained(self) -> None:
        if self._room is not None:
            self._room.set()

    def told_acknowledged(self) -> None:
        if self._is_acknowledged is not None:
            self._is_acknowledged.set()

    def told_failure(self, half: Half, code: int, reason: FailReason) -> None:
        error = StreamFailedError(half, code, reason)
        self._failed = {**(self._failed or {}), half: error}
        if self._news is not None and not self._news.done():
            self._news.set_result(None)
        for event in (self._room, self._is_acknowledged, self._has_failed):
            if event is not None:
                event.set()
        if self._on_failure is not None:
            self._on_failure(half, error)

    def _check(self, half: Half) -> None:
        if self._failed is not None and half in self._failed:
            raise self._failed[half]

"""One stream, as an application uses it."""

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
"""With more than this unsent `write` waits."""
READ_BYTES: Final = 64 * 1024


class MuxStream:
    """A stream of a session. Not to be made by applications.

    As a context manager it ends the writing after its block, and gives the reading up if that has
    no end yet; after an exception it gives both up.

    Attributes:
        session: of it.
    """

    # What somebody waits for is made when somebody does: an idle stream is small.
    __slots__ = ("_core", "_failed", "_has_failed", "_is_acknowledged", "_is_discarding", "_news",
                 "_on_failure", "_room", "session")  # fmt: skip

    def __init__(self, session: MuxSession, core: Stream) -> None:
        """
        Args:
            session: of it.
            core: its machine.
        """
        self.session = session
        self._core = core
        self._news: asyncio.Future[None] | None = None  # something to read, or no more
        self._room: asyncio.Event | None = None  # all was sent, or nothing more can be
        self._is_acknowledged: asyncio.Event | None = None  # all was read, or nothing will be
        self._has_failed: asyncio.Event | None = None
        self._on_failure: Callable[[Half, StreamFailedError], None] | None = None
        self._failed: dict[Half, StreamFailedError] | None = None
        self._is_discarding = False  # what comes

    @property
    def id(self) -> int:
        """Of the stream."""
        return self._core.id

    @property
    def is_ours(self) -> bool:
        """Whether it was opened on this side."""
        return self._core.is_ours

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *error: object) -> None:
        self.leave(kind is not None)

    def leave(self, has_failed: bool) -> None:
        """End what the application has not, as after its block.

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
        """Write bytes; waits while much is unsent, which ends when the other side reads.

        Raises:
            StreamFailedError: the other side reads no more, or the connection has ended.
            StreamStateError: it was ended here.
        """
        self.write_now(data)
        if self._core.queued_bytes > HIGH_WATER_BYTES:
            await self.drain()

    def write_now(self, data: bytes) -> None:
        """Write bytes without waiting, however much is unsent.

        Raises: as `write`.
        """
        if self._failed is not None:
            self._check(Half.WRITE)
        self._core.write(data)
        self.session.flush_soon()

    async def drain(self) -> None:
        """Return when all that was written has been sent.

        Raises:
            StreamFailedError: it was not.
        """
        while self._core.queued_bytes:
            self._check(Half.WRITE)
            if self._room is None:
                self._room = asyncio.Event()
            self._room.clear()
            await self._room.wait()
        self._check(Half.WRITE)

    async def acknowledged(self) -> None:
        """Return when the other side has read all that was written.

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
        """Return when a half of the stream has failed, and how."""
        if self._failed is None:
            if self._has_failed is None:
                self._has_failed = asyncio.Event()
            await self._has_failed.wait()
        assert self._failed is not None
        return next(iter(self._failed.items()))

    def call_on_failure(self, call: Callable[[Half, StreamFailedError], None] | None) -> None:
        """Have a function called when a half fails from now on; None ends that."""
        self._on_failure = call

    async def end(self) -> None:
        """End what is written; the other side reads all before that. Does nothing the second time.

        Raises:
            StreamFailedError: the other side reads no more, or the connection has ended.
        """
        self.end_now()

    def end_now(self) -> None:
        """Do as `end`."""
        if self._failed is not None:
            self._check(Half.WRITE)
        if self._core.writing is WriteState.OPEN:
            self.session.mux.end(self.id, self.session.now_ns())
            self.session.flush_soon()

    def read(self, size: int = READ_BYTES) -> Coroutine[Any, Any, bytes]:
        """Return up to so many bytes, at least one; none at the end.

        Raises:
            StreamFailedError: the other side gave its writing up, or the connection has ended.
            RuntimeError: another task is reading.
        """
        return self._next(size, False)

    def __aiter__(self) -> Self:
        return self

    def __anext__(self) -> Coroutine[Any, Any, bytes]:
        return self._next(READ_BYTES, True)

    async def _next(self, size: int, is_iterating: bool) -> bytes:
        """Read; one coroutine for both ways, as most streams are in it."""
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
        """Return everything up to the end.

        Raises:
            StreamFailedError: as `read`.
        """
        return b"".join([part async for part in self])

    def abort(self, code: int = 0) -> None:
        """Give the writing up: what was not sent is discarded. Does nothing after the end.

        Raises:
            ValueError: the code is not between 0 and 2^62 - 1.
        """
        self.session.mux.abort(self.id, code)
        self.session.flush_soon()

    def cancel(self, code: int = 0) -> None:
        """Give the reading up: who waits in `read` gets no more bytes. Does nothing after the end.

        Raises:
            ValueError: the code is not between 0 and 2^62 - 1.
        """
        self.session.mux.cancel(self.id, code)
        self.told_news()
        self.session.flush_soon()

    @property
    def is_at_end(self) -> bool:
        """Whether nothing is left to read, and nothing more comes."""
        return self._core.reading is not ReadState.OPEN and not self._core.held_bytes

    def discard(self) -> None:
        """Read and forget what still comes."""
        self._is_discarding = True
        if self._core.held_bytes:
            self.told_news()

    # --- told by the session ----------------------------------------------------------------------

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

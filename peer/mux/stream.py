"""One stream, as an application uses it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final, Self

from proto.mux.errors import MuxError, StreamStateError
from proto.mux.events import FailReason
from proto.mux.frames import Half

if TYPE_CHECKING:
    from peer.mux.session import MuxSession

HIGH_WATER_BYTES: Final = 256 * 1024
"""With more than this unsent `write` waits."""
READ_BYTES: Final = 64 * 1024


class StreamFailedError(MuxError):
    """A half of a stream ended before its end.

    Attributes:
        code: of the other side; 0 for other reasons.
        reason: why.
    """

    def __init__(self, half: Half, code: int, reason: FailReason) -> None:
        doing = "reading" if half is Half.READ else "writing"
        text = f"{doing}: {reason.value.replace('_', ' ')}"
        super().__init__(f"{text}, code {code}" if reason is FailReason.PEER else text)
        self.code = code
        self.reason = reason


class MuxStream:
    """A stream of a session. Not to be made by applications.

    As a context manager it ends the writing after its block, and gives the reading up if that has
    no end yet; after an exception it gives both up.

    Attributes:
        id: of it.
        is_ours: it was opened on this side.
    """

    def __init__(self, session: MuxSession, stream_id: int, is_ours: bool) -> None:
        self.id = stream_id
        self.is_ours = is_ours
        self._session = session
        self._news = asyncio.Event()  # something to read, or no more
        self._room = asyncio.Event()  # all was sent, or nothing more can be
        self._is_acknowledged = asyncio.Event()  # all was read, or nothing more will be
        self._has_failed = asyncio.Event()
        self._failed: dict[Half, StreamFailedError] = {}
        self._at_end = False  # the other side writes no more
        self._is_done = False  # and all was read

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is not None:
            self.abort()
        elif Half.WRITE not in self._failed:
            await self.end()
        self.cancel()

    async def write(self, data: bytes) -> None:
        """Write bytes; waits while much is unsent, which ends when the other side reads.

        Raises:
            StreamFailedError: the other side reads no more, or the connection has ended.
            StreamStateError: it was ended here.
        """
        self._check(Half.WRITE)
        self._session.mux.write(self.id, data)
        self._session.flush_soon()
        if self._session.mux.queued_of(self.id) > HIGH_WATER_BYTES:
            await self.drain()

    async def drain(self) -> None:
        """Return when all that was written has been sent.

        Raises:
            StreamFailedError: it was not.
        """
        while self._session.mux.queued_of(self.id):
            self._check(Half.WRITE)
            self._room.clear()
            await self._room.wait()
        self._check(Half.WRITE)

    async def acknowledged(self) -> None:
        """Return when the other side has read all that was written.

        Raises:
            StreamFailedError: a half of the stream has failed.
        """
        self._is_acknowledged.clear()
        self._check(Half.WRITE)
        self._session.mux.tell_acknowledged(self.id)
        await self._is_acknowledged.wait()
        for failed in self._failed.values():
            raise failed

    async def failed(self) -> tuple[Half, StreamFailedError]:
        """Return when a half of the stream has failed, and how."""
        await self._has_failed.wait()
        return next(iter(self._failed.items()))

    async def end(self) -> None:
        """End what is written; the other side reads all before that. Does nothing the second time.

        Raises:
            StreamFailedError: the other side reads no more, or the connection has ended.
        """
        self._check(Half.WRITE)
        try:
            self._session.mux.end(self.id, self._session.now_ns())
        except StreamStateError:
            return
        self._session.flush_soon()

    async def read(self, size: int = READ_BYTES) -> bytes:
        """Return up to so many bytes, at least one; none at the end.

        Raises:
            StreamFailedError: the other side gave its writing up, or the connection has ended.
        """
        while not self._is_done:
            self._check(Half.READ)
            try:
                data = self._session.mux.read(self.id, size)
            except StreamStateError:
                break
            if data:
                self._session.flush_soon()
                return data
            if self._at_end:
                break
            self._news.clear()
            await self._news.wait()
        self._is_done = True
        return b""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while data := await self.read():
            yield data

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
        self._session.mux.abort(self.id, code)
        self._session.flush_soon()

    def cancel(self, code: int = 0) -> None:
        """Give the reading up: who waits in `read` gets no more bytes. Does nothing after the end.

        Raises:
            ValueError: the code is not between 0 and 2^62 - 1.
        """
        self._session.mux.cancel(self.id, code)
        self._is_done = True
        self._news.set()
        self._session.flush_soon()

    # --- told by the session ----------------------------------------------------------------------

    def told_readable(self) -> None:
        self._news.set()

    def told_end(self) -> None:
        self._at_end = True
        self._news.set()

    def told_drained(self) -> None:
        self._room.set()

    def told_acknowledged(self) -> None:
        self._is_acknowledged.set()

    def told_failure(self, half: Half, code: int, reason: FailReason) -> None:
        self._failed[half] = StreamFailedError(half, code, reason)
        for event in (self._news, self._room, self._is_acknowledged, self._has_failed):
            event.set()

    def _check(self, half: Half) -> None:
        failed = self._failed.get(half)
        if failed is not None:
            raise failed

"""One upload at its receiver: its chunks on disk, its checksum, and its end.

Threads write the chunks, one at a time for each upload. The checksum is updated behind them: a
chunk that comes in order is hashed from memory, others are read again. So little is left to do when
the last chunk has arrived.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import os
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Final, TypeVar

from peer.modules import files_folder
from peer.modules.files_folder import UploadFolder
from proto.files.bounds import CHUNK_BYTES
from proto.files.errors import FileCode, RefusedError
from proto.files.messages import Offer, State, Status
from proto.files.receiving import Receiving, Verdict
from proto.files.records import Record

CATCH_UP_CHUNKS: Final = 32
"""Maximum number of chunks that are read again for the checksum with each new chunk: those written
before a restart are read little by little, without delaying others."""

_Result = TypeVar("_Result")


class Upload:
    """An unfinished upload whose file is open.

    Args:
        key: key of its files.
        record: record of the offer and its sender.
        folder: folder of the upload.
        executor: threads that write.
        last_heard: time of the last message about it.

    Attributes:
        record: newest record; saved by the owner.
        last_heard: time of the last message about it.
        finishing: task that ends it, once all chunks are there.
    """

    def __init__(
        self,
        key: str,
        record: Record,
        folder: UploadFolder,
        executor: Executor,
        last_heard: float,
    ) -> None:
        self.key = key
        self.record = record
        self.last_heard = last_heard
        self.finishing: asyncio.Task[None] | None = None
        self._executor = executor
        self._lock = asyncio.Lock()  # for the file: one thread at a time
        self._turns = asyncio.Lock()  # order of chunks without a number
        self._came = 0  # of them
        self._in_line = 0  # of them
        self._gap = math.inf  # first one that was not written: later ones must not take its place
        self._hash = hashlib.sha256()
        self._hashed = 0  # chunks in the checksum
        size_bytes = record.offer.size_bytes
        self._fd: int | None = folder.open_part(key, size_bytes)
        try:
            chunks = files_folder.read_footer(self._fd, size_bytes)
        except BaseException:
            os.close(self._fd)
            raise
        self._sealed = chunks is None
        self.account = Receiving(record.offer, record.offer.chunks if chunks is None else chunks)

    @property
    def offer(self) -> Offer:
        """The offer."""
        return self.record.offer

    @property
    def twin(self) -> int:
        """Id of the sender."""
        return self.record.source.twin

    @property
    def status(self) -> Status:
        """Chunks that have arrived."""
        return Status(self.record.id, State.OPEN, self.account.prefix, self.account.beyond)

    async def write(self, index: int, payload: bytes) -> None:
        """Write a chunk to disk; one that was written before changes nothing.

        Raises:
            RefusedError: the chunk cannot be written, or not now.
        """
        if self.account.expect(index, len(payload)) is Verdict.HAD_ALREADY:
            return
        try:
            await self._run(lambda fd: self._store(fd, index, payload))
        except BaseException:
            self.account.dropped(index)
            raise
        if self.account.wrote(index) and self._fd is not None:
            # After the data: a crash in between loses a chunk, but never counts a missing one.
            files_folder.write_footer(self._fd, self.offer.size_bytes, self.account.prefix)

    async def append(self, payload: bytes) -> None:
        """Write a chunk without a number to disk, behind those that came before it.

        Raises:
            RefusedError: the chunk cannot be written, or not now.
        """
        self._in_line += 1
        self._came += 1
        number = self._came
        try:
            async with self._turns:
                if number > self._gap:
                    raise RefusedError(FileCode.BUSY, "a chunk before this one was not written")
                await self.write(self.account.next, payload)
        except BaseException:
            self._gap = min(self._gap, number)
            raise
        finally:
            self._in_line -= 1
            if not self._in_line:
                self._gap = math.inf

    def skipped(self) -> None:
        """Record that there was no room for a chunk without a number."""
        if self._in_line:
            self._came += 1
            self._gap = min(self._gap, self._came)

    async def settled(self) -> None:
        """Wait until the chunks that came before are written or refused."""
        async with self._turns, self._lock:
            pass

    async def check(self) -> str:
        """Flush the upload to disk, and return its checksum.

        Raises:
            RefusedError: the content is not what was offered.
        """
        return await self._run(self._check)

    async def close(self) -> None:
        """Close its file, after writes in progress."""
        async with self._lock:
            if self._fd is not None:
                os.close(self._fd)
                self._fd = None

    async def _run(self, work: Callable[[int], _Result]) -> _Result:
        """Call a function with the open file, in a thread."""
        async with self._lock:
            if self._fd is None:
                raise RefusedError(FileCode.UNKNOWN, "the upload was given up")
            running = asyncio.get_running_loop().run_in_executor(self._executor, work, self._fd)
            try:
                return await asyncio.shield(running)
            except asyncio.CancelledError:
                # The thread continues and still uses the file.
                await asyncio.wait([running])
                raise

    # In a thread.

    def _store(self, fd: int, index: int, payload: bytes) -> None:
        files_folder.write_chunk(fd, payload, index * CHUNK_BYTES)
        if index == self._hashed:
            self._hash.update(payload)
            self._hashed += 1
        self._catch_up(fd, CATCH_UP_CHUNKS)

    def _check(self, fd: int) -> str:
        self._catch_up(fd, self.offer.chunks)
        found = self._hash.hexdigest()
        if self.offer.sha256 not in (None, found):
            raise RefusedError(
                FileCode.CHECKSUM,
                f"sha256 of what arrived is {found}, it was offered with {self.offer.sha256}",
            )
        if not self._sealed:
            files_folder.seal(fd, self.offer.size_bytes)
            self._sealed = True
        return found

    def _catch_up(self, fd: int, chunks: int) -> None:
        """Hash chunks that were written out of order, or before a restart."""
        for index in range(self._hashed, min(self._hashed + chunks, self.account.prefix)):
            self._hash.update(os.pread(fd, self.offer.chunk_size(index), index * CHUNK_BYTES))
            self._hashed += 1

"""The receiving end of uploads: answers `file.negotiate`, `file.write` and `file.close`.

Everything that must survive a kill is on disk before it is acknowledged: the record of an upload
before its offer is accepted, a chunk before its write is answered, and each stage of the end. At
the start the records are read and each upload resumes at its stage, so the command on arrival is
called at least once. An upload that cannot resume because of a disk error waits until the disk
works.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import logging
import math
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar

from peer.modules.api import JSON_SCHEMA, CommandError, Request, Response
from peer.modules.files_ended import Deliver, Ended
from peer.modules.files_folder import FolderError, UploadFolder
from peer.modules.files_upload import Upload
from proto.files import admission
from proto.files.bounds import MAX_ID_BYTES, UploadLimits
from proto.files.errors import FileCode, RefusedError
from proto.files.messages import (
    Offer,
    Status,
    encode_status,
    parse_chunk_tags,
    parse_close,
    parse_offer,
)
from proto.files.records import Record, RecordError, Stage
from proto.rmb.address import Address

THREADS: Final = 4
"""Number of threads that write to disk and compute checksums."""
MAX_PENDING_WRITES: Final = 64
"""Maximum number of chunks of all uploads that wait for the disk; more are refused as busy."""
MAX_PENDING_OFFERS: Final = 32
"""Maximum number of offers that wait to be processed; more are refused as busy."""
SWEEP_S: Final = 30.0
"""Seconds between searches for abandoned uploads, and for commands that could not be called."""

_Result = TypeVar("_Result")


class Receiver:
    """All uploads to one folder.

    Args:
        folder: folder for the uploads.
        limits: limits on uploads.
        deliver: passes the command on arrival to its service.
        log: logger of the module.
        clock: returns the Unix time in seconds.
    """

    def __init__(
        self,
        folder: UploadFolder,
        limits: UploadLimits,
        deliver: Deliver,
        log: logging.Logger,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._folder = folder
        self._limits = limits
        self._log = log
        self._clock = clock
        self._executor = ThreadPoolExecutor(THREADS, "upload")
        self._uploads: dict[str, Upload] = {}
        self._ended = Ended(folder, deliver, log, clock)
        # Former uploads that a disk error keeps from resuming; None: the record is unreadable too.
        self._waiting: dict[str, Record | None] = {}
        self._turns = asyncio.Lock()  # limits hold only if offers are processed one by one
        self._turn: asyncio.Task[Any] | None = None  # task whose turn it is
        self._pending_offers = 0
        self._pending_writes = 0
        self._sweeper: asyncio.Task[None] | None = None
        self._stopping = False

    async def start(self) -> None:
        """Resume the uploads that were in progress when the peer ended."""
        await self._in_thread(self._folder.remove_strays)
        found = await self._in_thread(lambda: list(self._folder.records()))
        # The oldest first: it was accepted when there was room for it.
        found.sort(key=lambda each: each[1].at if each[1] is not None else 0.0)
        for key, record in found:
            await self._take_up(key, record)
        self._sweeper = asyncio.create_task(self._sweep_for_ever())

    async def stop(self) -> None:
        """Stop, and keep everything on disk."""
        self._stopping = True
        tasks: list[asyncio.Task[Any]] = [
            upload.finishing for upload in self._uploads.values() if upload.finishing is not None
        ]
        if self._sweeper is not None:
            tasks.append(self._sweeper)
        for task in tasks:
            task.cancel()
        try:
            if self._turn is not None:
                await asyncio.wait([self._turn])
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._ended.stop()
            for upload in self._uploads.values():
                await upload.close()
        finally:  # also when cancelled: the next receiver needs the folder
            self._executor.shutdown()
            self._folder.close()

    # Requests of senders.

    async def negotiate(self, request: Request) -> Response:
        """Answer `file.negotiate`."""
        with _refusals():
            offer = parse_offer(request.payload)
            admission.check_sender(request.source.twin, self._limits)
            id = _bounded(offer.id(request.uid))
            if offer.name is None:
                offer = replace(offer, name=_key(request.source.twin, id))
            status = await self._one_offer(request.source, id, offer)
        return Response(encode_status(status), JSON_SCHEMA)

    async def write(self, request: Request) -> Response:
        """Answer `file.write`."""
        with _refusals():
            self._check_runs()
            numbered = parse_chunk_tags(request.tags)
            id = _bounded(request.uid) if numbered is None else numbered[0]
            key = _key(request.source.twin, id)
            upload = self._uploads.get(key)
            if upload is None:
                if key in self._ended:
                    return Response()  # a late repeat
                raise self._unknown(key)
            upload.last_heard = self._clock()
            if self._pending_writes >= MAX_PENDING_WRITES:
                if numbered is None:
                    upload.skipped()
                raise RefusedError(FileCode.BUSY, "too many chunks wait for the disk")
            self._pending_writes += 1
            try:
                if numbered is None:
                    await upload.append(request.payload)
                else:
                    await upload.write(numbered[1], request.payload)
            finally:
                self._pending_writes -= 1
        return Response()

    async def close(self, request: Request) -> Response:
        """Answer `file.close`."""
        with _refusals():
            self._check_runs()
            close = parse_close(request.payload)
            key = _key(request.source.twin, _bounded(close.id or request.uid))
            upload = self._uploads.get(key)
            if upload is not None and not upload.account.complete:
                await upload.settled()
                upload = self._uploads.get(key)  # it may have ended meanwhile
            if upload is None:
                if key not in self._ended:
                    raise self._unknown(key)
                status = self._ended.status(key)
            else:
                upload.last_heard = self._clock()
                if upload.account.complete:
                    await self._finished(upload, close.sha256)
                    status = self._ended.status(key)
                else:
                    status = upload.status
        return Response(encode_status(status), JSON_SCHEMA)

    def _check_runs(self) -> None:
        if self._stopping:  # new work would not be completed
            raise RefusedError(FileCode.BUSY, "the peer ends")

    def _unknown(self, key: str) -> RefusedError:
        if key in self._waiting:
            return RefusedError(FileCode.BUSY, "the disk does not let the upload go on yet")
        return RefusedError(FileCode.UNKNOWN, "no such upload")

    # Offers.

    async def _one_offer(self, source: Address, id: str, offer: Offer) -> Status:
        """Process an offer after those before it."""
        if self._pending_offers >= MAX_PENDING_OFFERS:
            raise RefusedError(FileCode.BUSY, "too many offers at a time")
        self._pending_offers += 1
        try:
            return await self._in_turn(lambda: self._offered(source, id, offer))
        finally:
            self._pending_offers -= 1

    async def _in_turn(self, work: Callable[[], Coroutine[Any, Any, _Result]]) -> _Result:
        """Run work that adds to the uploads, one at a time.

        The work runs in a task of its own, which holds the lock. If the caller stops waiting, as
        when a request has expired, the work begun on disk is still counted, and the next work waits
        for it.
        """
        await self._turns.acquire()
        turn = self._turn = asyncio.create_task(work())
        turn.add_done_callback(self._turn_done)
        return await asyncio.shield(turn)

    def _turn_done(self, task: asyncio.Task[Any]) -> None:
        self._turns.release()
        _retrieved(task)

    async def _offered(self, source: Address, id: str, offer: Offer) -> Status:
        self._check_runs()
        key = _key(source.twin, id)
        await self._try_again(key)
        if key in self._waiting:
            raise self._unknown(key)
        upload = self._uploads.get(key)
        if upload is not None:
            if upload.offer.file != offer.file:
                raise RefusedError(FileCode.BAD_REQUEST, "the uid is that of another upload")
            upload.record = upload.record.at_stage(Stage.OPEN, self._clock(), offer=offer)
            upload.last_heard = self._clock()
            return upload.status
        if key in self._ended and await self._ended.answers(key, offer):
            return self._ended.status(key)
        now = self._clock()
        record = Record(id, source, offer, at=now)
        usage, there = await self._in_thread(lambda: self._look(source.twin, record.name))
        if there and not offer.replace:
            raise RefusedError(FileCode.EXISTS, "a file of this name is there already")
        victim = admission.admit(offer, source.twin, usage, self._limits, now)
        if victim is not None:
            self._log.info("upload %s of twin %d was left and is given up", victim.key, victim.twin)
            await self._give_up(self._uploads[victim.key])
        try:
            await self._in_thread(lambda: self._folder.save(key, record))
            upload = await self._open(key, record, now)
        except BaseException:
            # An upload on disk that is not in `_uploads` would not count in the limits.
            await self._in_thread(lambda: self._folder.remove(key))
            raise
        self._log.info("twin %s uploads %r, %d bytes", source, record.name, offer.size_bytes)
        return upload.status

    def _look(self, twin: int, name: str) -> tuple[admission.Usage, bool]:
        return self._usage(twin), self._folder.find(twin, name) is not None

    def _look_again(self, key: str, record: Record) -> float:
        """Refuse a former upload that exceeds the present limits.

        Returns:
            Time of the last message about it: its record has that of the offer, its part that of
            the last chunk.
        """
        twin = record.source.twin
        last_heard = min(max(record.at, self._folder.written_at(key)), self._clock())
        upload = admission.Open(key, twin, record.offer.size_bytes, last_heard)
        admission.readmit(upload, self._usage(twin, but=key), self._limits)
        return last_heard

    def _usage(self, twin: int, but: str = "") -> admission.Usage:
        # Counted before the finished files: an upload that ends meanwhile counts twice, not never.
        uploads = [
            admission.Open(
                each.key,
                each.twin,
                each.offer.size_bytes,
                each.last_heard if each.finishing is None else math.inf,
            )
            for each in list(self._uploads.values())
        ]
        uploads += [
            admission.Open(key, each.source.twin, each.offer.size_bytes, math.inf)
            for key, each in list(self._waiting.items())
            if each is not None and key != but
        ]
        finished = self._folder.finished(twin)
        return admission.Usage(
            finished.size_bytes, finished.files, self._folder.free_bytes(), uploads
        )

    # The end of an upload.

    async def _finished(self, upload: Upload, sha256: str | None) -> None:
        """Wait until an upload has ended; start to end it if no other request did."""
        if sha256 is not None and upload.offer.sha256 not in (None, sha256):
            raise RefusedError(FileCode.BAD_REQUEST, "sha256 is not the one that was offered")
        if upload.finishing is None:
            if sha256 is not None and upload.offer.sha256 is None:
                offer = replace(upload.offer, sha256=sha256)
                upload.record = upload.record.at_stage(Stage.OPEN, self._clock(), offer=offer)
            upload.finishing = asyncio.create_task(self._finish(upload))
            upload.finishing.add_done_callback(_retrieved)
        await asyncio.shield(upload.finishing)

    async def _finish(self, upload: Upload) -> None:
        key = upload.key
        try:
            sha256 = await upload.check()
            record = upload.record.at_stage(Stage.MOVING, self._clock(), sha256=sha256)
            record = await self._in_thread(lambda: self._move(key, record))
        except RefusedError as error:
            self._log.warning("upload %s of twin %d failed: %s", key, upload.twin, error)
            await self._give_up(upload)
            raise
        except BaseException:
            upload.finishing = None  # the next close tries again
            raise
        self._log.info(
            "twin %s has uploaded %s",
            record.source,
            self._folder.path_of(upload.twin, record.name),
        )
        self._ended.add(key, record)
        del self._uploads[key]
        await upload.close()

    def _move(self, key: str, record: Record) -> Record:
        self._folder.save(key, record)
        return self._place(key, record)

    def _place(self, key: str, record: Record) -> Record:
        """Give the file its name; runs in a thread."""
        twin, offer = record.source.twin, record.offer
        try:
            target = self._folder.place(key, twin, record.name, offer.replace)
        except FileExistsError:
            raise RefusedError(
                FileCode.EXISTS, "a file of this name came while this one was uploaded"
            ) from None
        record = record.at_stage(Stage.MOVED, self._clock(), target=target)
        try:
            self._folder.save(key, record)
        except OSError as error:
            # The file has arrived nevertheless; after a kill the former record leads here again.
            self._log.warning("upload %s: can't save that it has its name: %s", key, error)
        return record

    # Housekeeping.

    async def _open(self, key: str, record: Record, last_heard: float) -> Upload:
        upload = await self._in_thread(
            lambda: Upload(key, record, self._folder, self._executor, last_heard)
        )
        self._uploads[key] = upload
        return upload

    async def _take_up(self, key: str, record: Record | None = None) -> None:
        """Resume a former upload, or keep it waiting until the disk works."""
        try:
            try:
                if record is None:
                    record = await self._in_thread(lambda: self._folder.load(key))
                await self._go_on(key, record)
            except (RecordError, FolderError, RefusedError) as error:
                self._log.warning("upload %s can't be taken up and is deleted: %s", key, error)
                await self._in_thread(lambda: self._folder.remove(key))
        except OSError as error:
            if key not in self._waiting:
                self._log.warning("upload %s can't be taken up yet: %s", key, error)
            self._waiting[key] = record
        else:
            self._waiting.pop(key, None)

    async def _try_again(self, key: str) -> None:
        if key in self._waiting:
            await self._take_up(key)

    async def _go_on(self, key: str, record: Record) -> None:
        if record.stage in (Stage.MOVED, Stage.DONE):
            self._ended.add(key, record)
        elif record.stage is Stage.MOVING:
            self._ended.add(key, await self._in_thread(lambda: self._place(key, record)))
        else:
            last_heard = await self._in_thread(lambda: self._look_again(key, record))
            await self._open(key, record, last_heard)

    async def _give_up(self, upload: Upload) -> None:
        self._uploads.pop(upload.key, None)
        await upload.close()
        await self._in_thread(lambda: self._folder.remove(upload.key))

    async def _sweep_for_ever(self) -> None:
        while True:
            try:
                await self._sweep()
            except OSError as error:
                self._log.warning("upload folder: %s", error)
            await asyncio.sleep(SWEEP_S)

    async def _sweep(self) -> None:
        now = self._clock()
        for upload in list(self._uploads.values()):
            if upload.finishing is None and now - upload.last_heard > self._limits.keep_s:
                self._log.info("upload %s of twin %d was left", upload.key, upload.twin)
                await self._give_up(upload)
        for key in list(self._waiting):
            await self._in_turn(partial(self._try_again, key))
        await self._ended.sweep()

    async def _in_thread(self, work: Callable[[], _Result]) -> _Result:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    """Convert refusals and disk errors to the error answer."""
    try:
        yield
    except RefusedError as error:
        raise CommandError(int(error.code), error.message) from None
    except (OSError, FolderError) as error:
        full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
        logging.getLogger(__name__).error("upload folder: %s", error)
        code = FileCode.NO_SPACE if full else FileCode.FAILED
        text = "the disk is full" if full else "the disk of the receiver does not work"
        raise CommandError(int(code), text) from None


def _key(twin: int, id: str) -> str:
    """Return the name of an upload's files, which is a valid file name for any id."""
    return hashlib.sha256(f"{twin} {id}".encode(errors="surrogatepass")).hexdigest()[:32]


def _bounded(id: str) -> str:
    if not 0 < len(id) <= MAX_ID_BYTES:
        raise RefusedError(
            FileCode.BAD_REQUEST, f"id has {len(id)} characters, 1 to {MAX_ID_BYTES} are allowed"
        )
    return id


def _retrieved(task: asyncio.Task[Any]) -> None:
    """Mark a task's exception as retrieved: its callers got it, if any still waited."""
    if not task.cancelled():
        task.exception()

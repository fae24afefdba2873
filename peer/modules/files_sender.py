"""The sending end of an upload: reads the file, and sends the requests of `proto.files.sending`.

The file is read once for its checksum, by which the receiver recognises it, and once more to be
sent: only the chunks in transit are in memory. The file must not change meanwhile.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import stat
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import Final

from peer.errors import PeerError, RelayError, RemoteError, TooLargeError, TwinNotFoundError
from peer.modules.api import JSON_SCHEMA, Context
from peer.modules.files_plain import send_plain
from peer.randomness import random_bytes
from proto.files.bounds import CHUNK_BYTES, MAX_TIMEOUT_S, SENDER_WINDOW_CHUNKS, STALL_S
from proto.files.errors import FileCode
from proto.files.messages import WRITE, Close, Offer, chunk_tags, encode_close, encode_offer
from proto.files.sending import Ask, Failure, Next, Phase, Sender
from proto.rmb.errors import UnknownTwinError
from proto.rmb.sealing import new_uid

HASH_BYTES: Final = 4 * 1024 * 1024
"""Bytes read at a time for the checksum."""


class UploadError(PeerError):
    """An upload did not succeed.

    Attributes:
        code: code of the receiver's error; 400 if the file cannot be sent, 103 if the twin does
            not exist; None for errors without a code.
    """

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.code = code


class Step(Enum):
    """Step of an upload that takes time."""

    READING = "reading"
    SENDING = "sending"


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of an upload."""

    step: Step
    done_bytes: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Uploaded:
    """An upload that has arrived."""

    id: str
    name: str
    """Name at the receiver."""
    size_bytes: int
    sha256: str
    resumed_bytes: int
    """Bytes that the receiver had before."""
    repeated_chunks: int
    """Number of chunks sent more than once."""
    seconds: float
    """Duration of sending."""


OnProgress = Callable[[Progress], None]
OnAccepted = Callable[[str], Awaitable[None]]


class SourceFile:
    """The open file to send; closed with the block.

    Args:
        path: path of a regular file.

    Raises:
        UploadError: the file cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            # Non-blocking: opening a pipe would wait for its other end.
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise UploadError(f"can't read {path}: {reason}", FileCode.BAD_REQUEST) from None
        self._state = os.fstat(self._fd)
        if not stat.S_ISREG(self._state.st_mode):
            os.close(self._fd)
            raise UploadError(f"{path} is not a regular file", FileCode.BAD_REQUEST)
        self.size_bytes = self._state.st_size

    def __enter__(self) -> SourceFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._fd)

    async def sha256(self, on_progress: OnProgress | None = None) -> str:
        """Read the whole file and return its checksum."""
        found = hashlib.sha256()
        for offset in range(0, self.size_bytes, HASH_BYTES):
            found.update(await asyncio.to_thread(self._read, offset, HASH_BYTES))
            if on_progress is not None:
                done_bytes = min(offset + HASH_BYTES, self.size_bytes)
                on_progress(Progress(Step.READING, done_bytes, self.size_bytes))
        return found.hexdigest()

    async def chunk(self, index: int) -> bytes:
        """Read one chunk."""
        return await asyncio.to_thread(self._read, index * CHUNK_BYTES, CHUNK_BYTES)

    def check_unchanged(self) -> None:
        """Raise an UploadError if the file was changed."""
        now = os.fstat(self._fd)
        if (now.st_size, now.st_mtime_ns) != (self._state.st_size, self._state.st_mtime_ns):
            raise UploadError(f"{self.path} was changed while it was sent")

    def _read(self, offset: int, size_bytes: int) -> bytes:
        wanted = min(size_bytes, self.size_bytes - offset)
        try:
            data = os.pread(self._fd, wanted, offset)
        except OSError as error:
            text = f"can't read {self.path}: {error.strerror}"
            raise UploadError(text, FileCode.BAD_REQUEST) from None
        if len(data) != wanted:
            raise UploadError(f"{self.path} was changed while it was sent")
        return data


async def upload(
    context: Context,
    twin: int,
    source: SourceFile,
    offer: Offer,
    *,
    window: int = SENDER_WINDOW_CHUNKS,
    stall_s: float = STALL_S,
    accepted: str = "",
    on_progress: OnProgress | None = None,
    on_accepted: OnAccepted | None = None,
) -> Uploaded:
    """Send a file, resuming an earlier attempt, and wait until it has arrived.

    Args:
        context: sends the requests.
        twin: id of the receiver.
        source: the file.
        offer: offer of this file, with its checksum and a name.
        window: maximum number of chunks of 512 KiB in transit, and in memory.
        stall_s: seconds without any progress after which the upload fails.
        accepted: id under which it was accepted before, if it was: then a relay that refuses the
            very first request does not end the upload.
        on_progress: called whenever something was acknowledged.
        on_accepted: called with the id once the receiver accepts it, before chunks are sent.

    Raises:
        UploadError: the file did not arrive.
    """
    begin = time.monotonic()
    sender = Sender(offer, begin, window, stall_s)
    run = _Run(context, twin, source, sender, accepted, on_progress, on_accepted)
    await run.finish()
    if sender.phase is Phase.PLAIN:
        await run.finish_plain(min(stall_s, MAX_TIMEOUT_S))
        sender.name = run.offer_uid
    elif sender.phase is not Phase.DONE:
        error = sender.error or Failure("the upload ended")
        raise UploadError(error.message, error.code)
    resumed_bytes = min((sender.resumed_chunks or 0) * CHUNK_BYTES, offer.size_bytes)
    return Uploaded(
        id=sender.id or run.offer_uid,
        name=sender.name,
        size_bytes=offer.size_bytes,
        sha256=offer.sha256 or "",
        resumed_bytes=resumed_bytes,
        repeated_chunks=sender.repeated_chunks,
        seconds=time.monotonic() - begin,
    )


class _Run:
    """Carries out the requests of a Sender.

    Attributes:
        offer_uid: uid of the newest offer.
    """

    def __init__(
        self,
        context: Context,
        twin: int,
        source: SourceFile,
        sender: Sender,
        accepted: str,
        on_progress: OnProgress | None,
        on_accepted: OnAccepted | None,
    ) -> None:
        self._context = context
        self._twin = twin
        self._source = source
        self._sender = sender
        self._accepted = accepted
        self._on_progress = on_progress
        self._on_accepted = on_accepted
        self._tasks: dict[asyncio.Task[bytes], Next] = {}
        self.offer_uid = ""

    async def finish(self) -> None:
        """Run until the sender is done or has failed."""
        try:
            while not self._sender.over:
                now = time.monotonic()
                while (request := self._sender.next_request(now)) is not None:
                    self._tasks[asyncio.create_task(self._ask(request))] = request
                timer = self._sender.next_timer()
                timeout_s = None if timer is None else max(0.0, timer - now)
                if self._tasks:
                    ended, _ = await asyncio.wait(
                        self._tasks, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
                    )
                    accepted = bool(self._sender.id)
                    for task in ended:
                        self._report(task, self._tasks.pop(task))
                    if self._on_accepted is not None and not accepted and self._sender.id:
                        await self._on_accepted(self._sender.id)
                elif timeout_s is not None:
                    await asyncio.sleep(timeout_s)
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def finish_plain(self, timeout_s: float) -> None:
        """Send the whole file to a receiver that answers as the reference does.

        Raises:
            UploadError: the file did not arrive.
        """
        offer = self._sender.offer

        def sent(chunks: int) -> None:
            if self._on_progress is not None:
                done_bytes = min(chunks * CHUNK_BYTES, offer.size_bytes)
                self._on_progress(Progress(Step.SENDING, done_bytes, offer.size_bytes))

        if self._on_accepted is not None:
            await self._on_accepted(self.offer_uid)
        context, twin, uid = self._context, self._twin, self.offer_uid
        try:
            await send_plain(context, twin, self._source, offer.chunks, uid, timeout_s, sent)
        except UploadError:
            raise
        except PeerError as error:
            code = error.code if isinstance(error, RemoteError) else None
            text = error.message if isinstance(error, RemoteError) else str(error)
            raise UploadError(
                f"{text} (this receiver can't go on with a part of a file: upload it again)", code
            ) from None

    async def _ask(self, request: Next) -> bytes:
        call, twin = self._context.call, self._twin
        if request.ask is Ask.WRITE:
            data = await self._source.chunk(request.index)
            tags = chunk_tags(self._sender.id, request.index)
            response = await call(twin, WRITE, data, timeout_s=request.timeout_s, tags=tags)
            return response.payload
        uid = None
        if request.ask is Ask.CLOSE:
            self._source.check_unchanged()
            payload = encode_close(Close(self._sender.id))
        else:
            payload = encode_offer(self._sender.offer)
            # A receiver without ids of its own identifies the upload by it.
            uid = self.offer_uid = self._accepted or new_uid(random_bytes)
        response = await call(
            twin,
            request.ask.value,
            payload,
            timeout_s=request.timeout_s,
            schema=JSON_SCHEMA,
            uid=uid,
        )
        return response.payload

    def _report(self, task: asyncio.Task[bytes], request: Next) -> None:
        """Report to the sender how a request ended."""
        patient = bool(self._accepted or self._sender.id)
        now = time.monotonic()
        try:
            payload = task.result()
        except UploadError as error:
            self._sender.stop(str(error))
        except RemoteError as error:
            self._sender.failed(request, Failure(error.message, error.code), now)
        except PeerError as error:
            missing = isinstance(error, TwinNotFoundError)
            # A relay's error before the file is accepted means a wrong twin, not a passing fault.
            final = (
                missing
                or isinstance(error, TooLargeError)
                or (isinstance(error, RelayError) and not patient)
            )
            code = UnknownTwinError.code if missing else None
            self._sender.failed(request, Failure(str(error), code, final), now)
        else:
            self._sender.answered(request, payload, now)
            if self._on_progress is not None:
                self._on_progress(
                    Progress(
                        Step.SENDING,
                        self._sender.acknowledged_bytes,
                        self._sender.offer.size_bytes,
                    )
                )

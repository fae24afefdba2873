"""Uploads that local programs request from their peer: `file.upload`, `file.status`, `file.cancel`.

A program pushes `file.upload` with `{"path", "cmd"?, "name"?, "replace"?}` and one destination. It
is answered with the id of the upload once the receiver has accepted the file; from then on the
peer is responsible for the upload. The upload is kept in the module's store, and continues after
the peer was killed. `file.status` reports its progress.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any, Final

from peer.errors import seconds
from peer.modules.api import JSON_SCHEMA, CommandError, Context, LocalRequest, Response
from peer.modules.files_sender import Progress, SourceFile, Step, UploadError, upload
from proto.files.bounds import MAX_JSON_BYTES
from proto.files.errors import FileCode, RefusedError
from proto.files.messages import Offer
from proto.files.names import check_command, check_name

MAX_RUNNING: Final = 4
"""Maximum number of uploads that are sent at a time; others wait for their turn."""
MAX_JOBS: Final = 256
"""Maximum number of uploads in progress or waiting; more are refused."""
MAX_ENDED: Final = 100
"""Maximum number of ended uploads that can be queried; the oldest are forgotten."""


class JobState(Enum):
    """State of a job."""

    SENDING = "sending"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Order:
    """The upload to send; kept in the store."""

    twin: int
    path: str
    name: str
    cmd: str | None
    replace: bool
    nonce: str
    size_bytes: int = 0
    sha256: str | None = None
    """Checksum that was accepted; after a restart no other content is sent under this order."""


@dataclass(slots=True)
class Job:
    """An order and its progress."""

    order: Order
    kept: bool
    """Whether it was accepted before the peer was started."""
    id: str = ""
    """Id of the upload; empty until it is accepted."""
    state: JobState = JobState.SENDING
    size_bytes: int = 0
    done_bytes: int = 0
    error: UploadError | None = None
    accepted: asyncio.Event = field(default_factory=asyncio.Event)
    """Event that is set when the receiver has accepted the file, or when the job has failed."""
    task: asyncio.Task[None] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the fields of the answer to `file.status`."""
        fields: dict[str, Any] = {
            "id": self.id,
            "state": self.state.value,
            "twin": self.order.twin,
            "path": self.order.path,
            "size": self.size_bytes,
            "done": self.done_bytes,
        }
        if self.error is not None:
            fields["err"] = {"code": self.error.code or 0, "message": str(self.error)}
        return fields


class Jobs:
    """All jobs of a peer.

    Args:
        context: context of the module.
        log: logger of the module.
        clock: returns the Unix time in seconds, as in deadlines.
    """

    def __init__(
        self, context: Context, log: logging.Logger, clock: Callable[[], float] = time.time
    ) -> None:
        self._context = context
        self._log = log
        self._clock = clock
        self._turns = asyncio.Semaphore(MAX_RUNNING)
        self._jobs: dict[str, Job] = {}  # by nonce, the oldest first

    async def start(self) -> None:
        """Resume the jobs in the store."""
        for nonce, value in (await self._context.store.all()).items():
            try:
                fields = json.loads(value)
                id, order = str(fields.pop("id")), Order(**fields)
            except (ValueError, TypeError, LookupError, AttributeError):
                self._log.warning("kept upload %s is damaged and forgotten", nonce)
                await self._context.store.remove(nonce)
            else:
                self._begin(order, id)

    async def stop(self) -> None:
        """Stop; unfinished jobs stay in the store."""
        tasks = [job.task for job in self._jobs.values() if job.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # Requests of local programs.

    async def upload(self, request: LocalRequest) -> Response:
        """Answer `file.upload` with the id, once the file is accepted."""
        order = _order(request)
        if sum(job.state is JobState.SENDING for job in self._jobs.values()) >= MAX_JOBS:
            raise CommandError(FileCode.BUSY, f"{MAX_JOBS} uploads are under way")
        job = self._begin(order)
        left_s = max(0.0, request.deadline - self._clock())
        try:
            async with asyncio.timeout(left_s):
                await job.accepted.wait()
        except (TimeoutError, asyncio.CancelledError) as error:
            await self._cancel(job)
            if isinstance(error, TimeoutError):
                text = f"twin {order.twin} did not accept the file within {seconds(left_s)}"
                raise CommandError(FileCode.BUSY, text) from None
            raise
        if job.error is not None:
            raise CommandError(job.error.code or FileCode.FAILED, str(job.error))
        return _json(job.id)

    async def status(self, request: LocalRequest) -> Response:
        """Answer `file.status`: one job for `{"id"}`, else all."""
        fields = _fields(request.payload) if request.payload else {}
        if "id" in fields:
            return _json(self._find(request, fields).to_json())
        return _json([job.to_json() for job in self._jobs.values()])

    async def cancel(self, request: LocalRequest) -> Response:
        """Answer `file.cancel`: end the job of `{"id"}`."""
        job = self._find(request, _fields(request.payload))
        await self._cancel(job)
        return _json(job.to_json())

    # Life of a job.

    def _begin(self, order: Order, id: str = "") -> Job:
        job = Job(order, kept=bool(id), id=id, size_bytes=order.size_bytes)
        self._jobs[order.nonce] = job
        job.task = asyncio.create_task(self._run(job))
        return job

    async def _run(self, job: Job) -> None:
        order = job.order
        try:
            async with self._turns:
                await self._send(job)
            job.state = JobState.DONE
        except UploadError as error:
            job.state, job.error = JobState.FAILED, error
            self._log.warning("upload of %s to twin %d failed: %s", order.path, order.twin, error)
        job.accepted.set()
        await self._context.store.remove(order.nonce)
        self._forget_old()

    async def _send(self, job: Job) -> None:
        order = job.order

        def progress(progress: Progress) -> None:
            job.size_bytes = progress.size_bytes
            if progress.step is Step.SENDING:
                job.done_bytes = progress.done_bytes

        with SourceFile(Path(order.path)) as source:
            job.size_bytes = job.size_bytes or source.size_bytes
            sha256 = await source.sha256()
            if order.sha256 not in (None, sha256):
                raise UploadError(f"{order.path} was changed while it was sent")
            offer = Offer(
                source.size_bytes, order.name, sha256, order.cmd, order.replace, order.nonce
            )

            async def accepted(id: str) -> None:
                job.id = id
                # Stored before the id is returned: an id that was returned must stay valid.
                kept = replace(order, size_bytes=source.size_bytes, sha256=sha256)
                value = json.dumps(asdict(kept) | {"id": id}).encode()
                await self._context.store.put(order.nonce, value)
                job.accepted.set()

            done = await upload(
                self._context,
                order.twin,
                source,
                offer,
                accepted=job.id if job.kept else "",
                on_progress=progress,
                on_accepted=accepted,
            )
        job.done_bytes = done.size_bytes
        self._log.info(
            "%s is at twin %d as %r: %d bytes in %.1f s",
            *(order.path, order.twin, done.name, done.size_bytes, done.seconds),
        )

    async def _cancel(self, job: Job) -> None:
        if job.state is not JobState.SENDING or job.task is None:
            return
        job.task.cancel()
        await asyncio.gather(job.task, return_exceptions=True)
        job.state, job.error = JobState.FAILED, UploadError("cancelled")
        job.accepted.set()
        await self._context.store.remove(job.order.nonce)
        self._forget_old()

    def _find(self, request: LocalRequest, fields: dict[str, Any]) -> Job:
        # The receiver derives the id from the file: other twins may return the same one.
        id, twins = fields.get("id"), {each.twin for each in request.destinations}
        for job in reversed(self._jobs.values()):
            if job.id and job.id == id and job.order.twin in twins:
                return job
        raise CommandError(FileCode.UNKNOWN, "no such upload to this twin")

    def _forget_old(self) -> None:
        ended = [nonce for nonce, job in self._jobs.items() if job.state is not JobState.SENDING]
        for nonce in ended[: max(0, len(ended) - MAX_ENDED)]:
            del self._jobs[nonce]


def _order(request: LocalRequest) -> Order:
    """Parse `file.upload`; errors have the reference's texts where it has one."""
    if request.schema != JSON_SCHEMA:
        raise CommandError(FileCode.BAD_REQUEST, "expected content schema to be application/json")
    if len(request.destinations) != 1:
        raise CommandError(FileCode.BAD_REQUEST, "can only upload to one destination")
    fields = _fields(request.payload)
    path, cmd = fields.get("path"), fields.get("cmd")
    name, replace = fields.get("name"), fields.get("replace", False)
    if not isinstance(path, str) or not path:
        raise CommandError(FileCode.BAD_REQUEST, "path must be that of a file")
    if not all(value is None or isinstance(value, str) for value in (cmd, name)):
        raise CommandError(FileCode.BAD_REQUEST, "cmd and name must be text")
    if type(replace) is not bool:
        raise CommandError(FileCode.BAD_REQUEST, "replace must be true or false")
    name = Path(path).name if name is None else name
    try:
        check_name(name)
        if cmd is not None:
            check_command(cmd)
    except RefusedError as error:
        raise CommandError(error.code, error.message) from None
    twin = request.destinations[0].twin
    return Order(twin, path, name, cmd, replace, str(uuid.uuid4()))


def _fields(payload: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(payload) if len(payload) <= MAX_JSON_BYTES else None
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        raise CommandError(FileCode.BAD_REQUEST, "invalid json request")
    return fields


def _json(value: object) -> Response:
    return Response(json.dumps(value).encode(), JSON_SCHEMA)

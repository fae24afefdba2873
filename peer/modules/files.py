"""The module `file`: uploads in both directions, see `proto.files` for the protocol.

    remote twin    file.negotiate, file.write, file.close  -->  Receiver  -->  upload folder
    local program  file.upload, file.status, file.cancel   -->  Jobs      -->  another peer

A peer without an upload folder refuses uploads, and can still send them. From Python:

    uploads = Uploads(None)
    async with Client(secret, relays, twins, modules=[uploads]) as client:
        done = await uploads.send(102, Path("report.pdf"), cmd="reports.new")
"""

from __future__ import annotations

import uuid
from pathlib import Path

from peer.modules.api import Answer, CommandError, Context, LocalRequest, Module, Request
from peer.modules.files_folder import UploadFolder
from peer.modules.files_jobs import Jobs
from peer.modules.files_receiver import Receiver
from peer.modules.files_sender import OnProgress, SourceFile, Uploaded, UploadError, upload
from proto.files.bounds import SENDER_WINDOW_CHUNKS, STALL_S, UploadLimits
from proto.files.errors import FileCode, RefusedError
from proto.files.messages import Offer
from proto.files.names import check_command, check_name


class Uploads(Module):
    """The module `file`.

    Args:
        folder: folder for received uploads; None: this peer refuses uploads.
        limits: limits on received uploads.
    """

    def __init__(self, folder: Path | None, limits: UploadLimits | None = None) -> None:
        super().__init__("file")
        self._folder = folder
        self._limits = limits or UploadLimits()
        self._receiver: Receiver | None = None
        self._jobs: Jobs | None = None
        self._context: Context | None = None
        self.command("negotiate")(self._negotiate)
        self.command("write")(self._write)
        self.command("close")(self._close)
        self.local("upload")(self._upload)
        self.local("status")(self._status)
        self.local("cancel")(self._cancel)

    async def on_start(self, context: Context) -> None:
        """Resume the uploads that were in progress when the peer ended.

        Raises:
            FolderError: the upload folder cannot be used.
        """
        self._context = context
        try:
            if self._folder is not None:
                folder = UploadFolder(self._folder)
                self._receiver = Receiver(folder, self._limits, context.deliver, self.log)
                await self._receiver.start()
            self._jobs = Jobs(context, self.log)
            await self._jobs.start()
        except BaseException:
            await self.on_stop()
            raise

    async def on_stop(self) -> None:
        """Stop, and keep the state of all uploads."""
        try:
            if self._jobs is not None:
                await self._jobs.stop()
        finally:
            if self._receiver is not None:
                await self._receiver.stop()

    async def send(
        self,
        twin: int,
        path: Path,
        *,
        name: str | None = None,
        cmd: str | None = None,
        replace: bool = False,
        window: int = SENDER_WINDOW_CHUNKS,
        stall_s: float = STALL_S,
        on_progress: OnProgress | None = None,
    ) -> Uploaded:
        """Send a file and wait until it has arrived; chunks that the receiver has are not resent.

        Args:
            twin: id of the receiver.
            path: path of a regular file, which must not change meanwhile.
            name: name of the file at the receiver; None: that of the path.
            cmd: command that the receiver calls when the file has arrived.
            replace: whether a file of this name is replaced.
            window: maximum number of chunks of 512 KiB in transit, and in memory.
            stall_s: seconds without any progress after which the upload fails.
            on_progress: called with the progress.

        Raises:
            UploadError: the file did not arrive.
        """
        assert self._context is not None, "the module was not started"
        name = path.name if name is None else name
        try:
            check_name(name)
            if cmd is not None:
                check_command(cmd)
        except RefusedError as error:
            raise UploadError(error.message) from None
        with SourceFile(path) as source:
            sha256 = await source.sha256(on_progress)
            nonce = str(uuid.uuid4())
            offer = Offer(source.size_bytes, name, sha256, cmd, replace, nonce)
            return await upload(
                self._context,
                twin,
                source,
                offer,
                window=window,
                stall_s=stall_s,
                on_progress=on_progress,
            )

    async def _negotiate(self, request: Request) -> Answer:
        return await self._receiving().negotiate(request)

    async def _write(self, request: Request) -> Answer:
        return await self._receiving().write(request)

    async def _close(self, request: Request) -> Answer:
        return await self._receiving().close(request)

    async def _upload(self, request: LocalRequest) -> Answer:
        return await self._sending().upload(request)

    async def _status(self, request: LocalRequest) -> Answer:
        return await self._sending().status(request)

    async def _cancel(self, request: LocalRequest) -> Answer:
        return await self._sending().cancel(request)

    def _receiving(self) -> Receiver:
        if self._receiver is None:
            raise CommandError(FileCode.NOT_ALLOWED, "this peer takes no uploads")
        return self._receiver

    def _sending(self) -> Jobs:
        assert self._jobs is not None, "the module was not started"
        return self._jobs

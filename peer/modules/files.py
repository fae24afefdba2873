"""The module `file`: uploads in both directions, see `proto.files` for the protocol.

    remote twin    file.negotiate, file.write, file.close  -->  Receiver  -->  upload folder
    local program  file.upload, file.status, file.cancel   -->  Jobs      -->  another peer

A peer without an upload folder takes no uploads, and still sends them.
"""

from __future__ import annotations

from pathlib import Path

from peer.modules.api import Answer, CommandError, Context, LocalRequest, Module, Request
from peer.modules.files_folder import UploadFolder
from peer.modules.files_jobs import Jobs
from peer.modules.files_receiver import Receiver
from proto.files.bounds import UploadLimits
from proto.files.errors import FileCode


class Uploads(Module):
    """The module.

    Args:
        folder: where uploads go; None: this peer takes none.
        limits: what is taken.
    """

    def __init__(self, folder: Path | None, limits: UploadLimits | None = None) -> None:
        super().__init__("file")
        self._folder = folder
        self._limits = limits or UploadLimits()
        self._receiver: Receiver | None = None
        self._jobs: Jobs | None = None
        self.command("negotiate")(self._negotiate)
        self.command("write")(self._write)
        self.command("close")(self._close)
        self.local("upload")(self._upload)
        self.local("status")(self._status)
        self.local("cancel")(self._cancel)

    async def on_start(self, context: Context) -> None:
        """Takes up what was there when the peer ended.

        Raises:
            FolderError: the upload folder can't be used.
        """
        if self._folder is not None:
            folder = UploadFolder(self._folder)
            self._receiver = Receiver(folder, self._limits, context.deliver, self.log)
            await self._receiver.start()
        self._jobs = Jobs(context, self.log)
        await self._jobs.start()

    async def on_stop(self) -> None:
        """Leaves everything as it is."""
        if self._jobs is not None:
            await self._jobs.stop()
        if self._receiver is not None:
            await self._receiver.stop()

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

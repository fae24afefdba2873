"""Make the disk begin early to write what the bundled server appends to its file.

The server syncs the file to the disk once a second (`appendfsync everysec`). Until the disk is
done, which takes longer the more has been appended, the server appends nothing and collects new
data in a buffer that grows by a MiB at a time: 30 to 60 MB with messages of 16 KiB, which are then
written in one piece. So this module makes the disk begin long before the server waits for it.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

from relay.server.beside import working_beside

LEAST_BYTES: Final = 256 << 10
"""Smaller amounts are left for the next check."""

BUSY_S: Final = 0.01
IDLE_S: Final = 0.25
"""Seconds between two checks: while at least `LEAST_BYTES` arrive between them, and otherwise."""

PAGE_BYTES: Final = 4096


@contextlib.contextmanager
def written_early(folder: Path) -> Iterator[None]:
    """Watch the file that a server appends to in a thread, if the system supports such advice.

    Args:
        folder: Folder of the server; files in subfolders count too.
    """
    if not hasattr(os, "posix_fadvise"):
        yield
        return
    with working_beside("early-writes", partial(_keep_looking, EarlyWrites(folder))):
        yield


def _keep_looking(writes: EarlyWrites, stop: threading.Event) -> None:
    wait_s = IDLE_S
    while not stop.wait(wait_s):
        wait_s = IDLE_S
        with contextlib.suppress(OSError):  # some file systems do not support it
            if writes.begin():
                wait_s = BUSY_S
    writes.close()


class EarlyWrites:
    """The file that a server appends to, and how much of it has been passed to the disk."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path: Path | None = None
        self._descriptor = -1
        self._told_bytes = 0

    def begin(self) -> bool:
        """Make the disk begin to write what has been appended.

        Returns:
            Whether there was enough to write.
        """
        if self._come() < LEAST_BYTES:
            self._follow()
        come = self._come()
        if come < LEAST_BYTES:
            return False
        whole = come - (self._told_bytes + come) % PAGE_BYTES  # the last page is still being filled
        # This advice does not drop dirty pages: it starts writing them.
        os.posix_fadvise(self._descriptor, self._told_bytes, whole, os.POSIX_FADV_DONTNEED)
        self._told_bytes += whole
        return True

    def close(self) -> None:
        """Close the file."""
        if self._path is not None:
            os.close(self._descriptor)
            self._path = None

    def _come(self) -> int:
        if self._path is None:
            return 0
        return os.fstat(self._descriptor).st_size - self._told_bytes

    def _follow(self) -> None:
        """Switch to the newest file: each rewrite begins another one."""
        newest = max(self._appended(), default=None)
        if newest is None or newest[1] == self._path:
            return
        self.close()
        self._descriptor = os.open(newest[1], os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        self._path = newest[1]
        self._told_bytes = 0

    def _appended(self) -> Iterator[tuple[int, Path]]:
        for path in self._folder.rglob("*.aof"):
            if not path.name.startswith("temp-"):  # written by a rewrite
                with contextlib.suppress(OSError):
                    yield path.lstat().st_mtime_ns, path

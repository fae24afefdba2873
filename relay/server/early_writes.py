"""What the bundled server appends to its file, sent on to the disk as it comes.

The server has the disk write the file once a second (`appendfsync everysec`). Until the disk is
done, which takes as long as much has come, the server appends nothing and keeps what comes in a
buffer that grows by a MiB at a time: 30 to 60 MB with messages of 16 KiB, which then are written in
one piece. So the disk is told to begin long before it is asked whether it is done.
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
"""Less is left for the next look."""

BUSY_S: Final = 0.01
IDLE_S: Final = 0.25
"""Between two looks, while so much comes between them and otherwise."""

PAGE_BYTES: Final = 4096


@contextlib.contextmanager
def written_early(folder: Path) -> Iterator[None]:
    """Within it a thread looks at the file a server appends to, where systems take such advice.

    Args:
        folder: of the server; files in folders below it count too.
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
        with contextlib.suppress(OSError):  # some file systems take no advice
            if writes.begin():
                wait_s = BUSY_S
    writes.close()


class EarlyWrites:
    """The file a server appends to, and how much of it the disk was told of."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path: Path | None = None
        self._descriptor = -1
        self._told_bytes = 0

    def begin(self) -> bool:
        """Has the disk begin with what has come.

        Returns:
            Whether it was worth it.
        """
        if self._come() < LEAST_BYTES:
            self._follow()
        come = self._come()
        if come < LEAST_BYTES:
            return False
        whole = come - (self._told_bytes + come) % PAGE_BYTES  # the last page is still filled
        # Dirty pages are not dropped by this advice: their writing begins.
        os.posix_fadvise(self._descriptor, self._told_bytes, whole, os.POSIX_FADV_DONTNEED)
        self._told_bytes += whole
        return True

    def close(self) -> None:
        """Lets go of the file."""
        if self._path is not None:
            os.close(self._descriptor)
            self._path = None

    def _come(self) -> int:
        if self._path is None:
            return 0
        return os.fstat(self._descriptor).st_size - self._told_bytes

    def _follow(self) -> None:
        """Each rewrite begins another file."""
        newest = max(self._appended(), default=None)
        if newest is None or newest[1] == self._path:
            return
        self.close()
        self._descriptor = os.open(newest[1], os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        self._path = newest[1]
        self._told_bytes = 0

    def _appended(self) -> Iterator[tuple[int, Path]]:
        for path in self._folder.rglob("*.aof"):
            if not path.name.startswith("temp-"):  # what a rewrite makes
                with contextlib.suppress(OSError):
                    yield path.lstat().st_mtime_ns, path

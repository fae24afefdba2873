"""Files that the bundled server has left, given back to the disk in steps.

When a rewrite of its append-only file is done, the server removes the files before it, and waits
until the disk has the list of those that are left. Where 256 MiB are freed in one piece, the disk
does that first: 160 ms in which nobody is served, every other second with messages of 16 KiB (seen
on ext4 with `discard`). So what will be left is opened before, which keeps it, and made smaller
step by step once it has no name any more; the disk has time for the server in between. What the
disk has not got of it by then would keep it as busy, so that is written before the rewrite begins.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

STEP_BYTES: Final = 8 << 20
STEP_S: Final = 0.005
"""Between two steps: a GiB takes a second or two."""

PATTERNS: Final = ("*.aof", "*.rdb")


class LeftFiles:
    """Files of a server that it may leave.

    Args:
        folder: of the server; those in folders below it count too.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: dict[tuple[int, int], int] = {}  # descriptor by device and inode

    def hold(self) -> None:
        """Keeps what there is now, for when it is left, and has the disk write all of it.

        What cannot be opened is not kept.
        """
        for path in self._paths():
            with contextlib.suppress(OSError):
                descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
                found = os.fstat(descriptor)
                held = self._held.setdefault((found.st_dev, found.st_ino), descriptor)
                if held != descriptor:
                    os.close(descriptor)
                os.fsync(held)

    def free(self, wait: Callable[[float], bool]) -> None:
        """Frees what has no name any more.

        Args:
            wait: waits so many seconds between two steps; True: there is no time for more.
        """
        for key, descriptor in list(self._held.items()):
            found = os.fstat(descriptor)
            if found.st_nlink:
                continue
            size_bytes = found.st_size
            while size_bytes > 0 and not wait(STEP_S):
                size_bytes = max(size_bytes - STEP_BYTES, 0)
                os.ftruncate(descriptor, size_bytes)
            os.close(self._held.pop(key))

    def close(self) -> None:
        """Lets go of everything: what has no name is freed in one piece."""
        while self._held:
            os.close(self._held.popitem()[1])

    def _paths(self) -> Iterator[Path]:
        for pattern in PATTERNS:
            yield from self._folder.rglob(pattern)

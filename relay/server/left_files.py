"""Free the disk space of files that the bundled server abandons, in steps.

When a rewrite of its append-only file is done, the server removes the previous files and waits
until the disk has synced the list of the remaining ones. If 256 MiB are freed in one piece, the
disk does that first: 160 ms in which no client is served, every other second with messages of 16
KiB (seen on ext4 with `discard`). So this module opens the files before they are removed, which
keeps their space allocated, and truncates them step by step once they have no name any more; in
between, the disk has time for the server. Data not yet written by then would keep the disk just as
busy, so it is synced before the rewrite begins.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

STEP_BYTES: Final = 8 << 20
STEP_S: Final = 0.005
"""Seconds between two steps: freeing a GiB takes a second or two."""

PATTERNS: Final = ("*.aof", "*.rdb")


class LeftFiles:
    """Files of a server that it may abandon.

    Args:
        folder: Folder of the server; files in subfolders count too.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: dict[tuple[int, int], int] = {}  # descriptor by device and inode

    def hold(self) -> None:
        """Open the current files, to keep them when they are removed, and sync them to the disk.

        Files that cannot be opened are skipped.
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
        """Free the held files that have no name any more.

        Args:
            wait: Waits the given number of seconds between two steps; returns True if there is no
                time for more.
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
        """Close all files: those without a name are freed in one piece."""
        while self._held:
            os.close(self._held.popitem()[1])

    def _paths(self) -> Iterator[Path]:
        for pattern in PATTERNS:
            yield from self._folder.rglob(pattern)

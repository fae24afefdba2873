"""Scratch folders for Spark's shuffles: one for each process that runs Spark.

Java removes its files when it ends normally; if it is killed, it leaves them, which may be
gigabytes after a large job. So each folder is locked for as long as its process runs, and the next
process that starts Spark removes the folders that no process holds.
"""

from __future__ import annotations

import contextlib
import fcntl
import secrets
import shutil
from pathlib import Path
from typing import Final

from relay.analytics.segments import lock

_LOCK: Final = "lock"


class Scratch:
    """Scratch folder of this process.

    Attributes:
        path: path of the folder.
    """

    def __init__(self, parent: Path) -> None:
        """
        Args:
            parent: folder of all scratch folders; created if it does not exist.

        Raises:
            OSError: there is no room, or no permission.
        """
        parent.mkdir(parents=True, exist_ok=True)
        self.path = parent / secrets.token_hex(4)
        with (parent / _LOCK).open("a") as guard:
            fcntl.flock(guard, fcntl.LOCK_EX)  # hides a new folder until it is locked
            for found in parent.iterdir():
                if found.is_dir() and _nobody_holds(found):
                    shutil.rmtree(found, ignore_errors=True)
            self.path.mkdir()
            self._held = (self.path / _LOCK).open("a")
            lock(self._held.fileno())

    def close(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._held.close()


def _nobody_holds(folder: Path) -> bool:
    with contextlib.suppress(FileNotFoundError), (folder / _LOCK).open("r+") as file:
        return lock(file.fileno())
    return True

"""Where Spark keeps what it shuffles: a folder for each process that runs it.

Java removes its files when it ends in peace; one that is killed leaves them, gigabytes of a large
job. So a folder is locked for as long as its process lives, and whoever starts Spark next removes
those nobody holds.
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
    """One such folder.

    Attributes:
        path: of it.
    """

    def __init__(self, parent: Path) -> None:
        """
        Args:
            parent: of all of them; made if there is none.

        Raises:
            OSError: there is no room, or no permission.
        """
        parent.mkdir(parents=True, exist_ok=True)
        self.path = parent / secrets.token_hex(4)
        with (parent / _LOCK).open("a") as guard:
            fcntl.flock(guard, fcntl.LOCK_EX)  # a folder is not seen between being made and locked
            for found in parent.iterdir():
                if found.is_dir() and _nobody_holds(found):
                    shutil.rmtree(found, ignore_errors=True)
            self.path.mkdir()
            self._held = (self.path / _LOCK).open("a")
            lock(self._held.fileno())

    def close(self) -> None:
        """Remove it."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._held.close()


def _nobody_holds(folder: Path) -> bool:
    with contextlib.suppress(FileNotFoundError), (folder / _LOCK).open("r+") as file:
        return lock(file.fileno())
    return True

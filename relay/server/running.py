"""The note of a running relay in its data folder: its process id and its settings.

    relay: note() at its start  ->  data/running.json, locked while it runs
    commands: read()            ->  the note, or None if no relay holds the lock

Only the starting process knows its command line options; commands would otherwise show settings
that no relay uses. The lock distinguishes a running relay from one that was killed, even where
process ids are reused, as in containers.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

FILE: Final = "running.json"
MAX_BYTES: Final = 1 << 20


class Running(NamedTuple):
    """A relay that runs on a data folder.

    Attributes:
        pid: Process id of its supervisor.
        settings: Value and origin of each setting by key, as `rmbsite.config.describe` returns
            them.
    """

    pid: int
    settings: Mapping[str, Mapping[str, Any]]


class Note:
    """The note of this relay, valid until it is closed."""

    def __init__(self, data_dir: Path, settings: Mapping[str, Mapping[str, Any]]) -> None:
        self._path = data_dir / FILE
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return  # another relay runs on this folder; commands see that one
        text = json.dumps({"pid": os.getpid(), "settings": settings}, indent=2)
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{text}\n".encode(), 0)

    def close(self) -> None:
        """Release the lock; the file stays, but means nothing without the lock."""
        os.close(self._fd)


def read(data_dir: Path) -> Running | None:
    """Return the note of the relay that runs on a data folder; None if none runs."""
    try:
        with open(data_dir / FILE, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return None
    except BlockingIOError:
        pass
    except OSError:
        return None
    try:
        with open(data_dir / FILE, "rb") as file:
            found = json.loads(file.read(MAX_BYTES))
        return Running(int(found["pid"]), dict(found["settings"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None

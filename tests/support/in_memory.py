"""Temporary files of the tests in memory: on a disk that stalls, any test may time out."""

from __future__ import annotations

import os
import tempfile
from typing import Final

import psutil

MEMORY: Final = "/dev/shm"
ROOM_BYTES: Final = 6 << 30
"""Free memory required, in bytes: a run takes up to 2 GiB; others may run beside it."""


def use_memory_for_temporary_files() -> None:
    """Choose the folder for this process and its children, unless TMPDIR is set."""
    if "TMPDIR" in os.environ:
        return
    try:
        found = os.statvfs(MEMORY)
    except OSError:  # not Linux
        return
    # Tests load libraries that they compile, which containers may forbid in this folder.
    if found.f_flag & os.ST_NOEXEC or not os.access(MEMORY, os.W_OK):
        return
    room_bytes = min(found.f_bavail * found.f_frsize, psutil.virtual_memory().available)
    if room_bytes >= ROOM_BYTES:
        os.environ["TMPDIR"] = tempfile.tempdir = MEMORY

"""How much memory is available: that of this machine, container or service."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

CGROUPS: Final = Path("/sys/fs/cgroup")
OWN_CGROUP: Final = Path("/proc/self/cgroup")
UNIFIED: Final = "0::"
"""Prefix of the line in `OWN_CGROUP` with the path in the single hierarchy of version 2."""
V1_LIMIT: Final = "memory/memory.limit_in_bytes"


def machine_bytes(cgroups: Path = CGROUPS, own: Path = OWN_CGROUP) -> int:
    """Return the smallest of the machine's memory and the limits of all enclosing control groups.

    Args:
        cgroups: Folder where the system shows control groups.
        own: File that names the control groups of this process.
    """
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    found = [_limit(cgroups / V1_LIMIT)]
    for line in _text(own).splitlines():
        if line.startswith(UNIFIED):
            place = cgroups / line.removeprefix(UNIFIED).lstrip("/")
            around = [each for each in (place, *place.parents) if each.is_relative_to(cgroups)]
            found += [_limit(each / "memory.max") for each in around]
    return min(limits + [limit for limit in found if limit])


def _limit(path: Path) -> int:
    """Return the number in a file; 0 if the file is missing or states that there is no limit."""
    text = _text(path).strip()
    return int(text) if text.isdecimal() else 0


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""

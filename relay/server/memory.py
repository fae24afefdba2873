"""How much memory this machine has, or the container or service this process runs in."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

CGROUPS: Final = Path("/sys/fs/cgroup")
OWN_CGROUP: Final = Path("/proc/self/cgroup")
UNIFIED: Final = "0::"
"""Begins the line of `OWN_CGROUP` with the place in the one hierarchy of version 2."""
V1_LIMIT: Final = "memory/memory.limit_in_bytes"


def machine_bytes(cgroups: Path = CGROUPS, own: Path = OWN_CGROUP) -> int:
    """The least of the machine's memory and the limits of the control groups around this process.

    Args:
        cgroups: where the system shows control groups.
        own: file that names those of this process.
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
    """The number in a file; 0 where there is none, or it says that there is no limit."""
    text = _text(path).strip()
    return int(text) if text.isdecimal() else 0


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""

"""Raise the limit of open files: each session is one, and the usual limit is 1,024."""

from __future__ import annotations

import resource
from typing import Final

MOST_OPEN_FILES: Final = 1024 * 1024
"""Linux' own ceiling for a process unless it was raised; for systems that report no other limit."""


def raise_limit() -> str:
    """Raise this process's soft limit, which its children inherit, and describe the result."""
    before, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_OPEN_FILES)
    if before == resource.RLIM_INFINITY or before >= wanted:
        return f"limit of open files {_shown(before)}"
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError) as error:
        return f"limit of open files {before}; raising it to {wanted} failed: {error}"
    return f"limit of open files raised from {before} to {wanted}"


def current_limit() -> int | None:
    """Return the soft limit; None if there is no limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


def _shown(limit: int) -> str:
    return "none" if limit == resource.RLIM_INFINITY else str(limit)

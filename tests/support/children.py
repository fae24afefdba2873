"""Child processes of a process, found by their arguments."""

from __future__ import annotations

import contextlib

import psutil


def children(word: str, of: int | None = None, *, recursive: bool = False) -> list[psutil.Process]:
    """Return the children of the process `of` (or of this one) with `word` as an argument.

    A child that ends during the search is omitted.

    Args:
        word: a whole argument.
        of: process id.
        recursive: whether to include all descendants.
    """
    found = []
    for child in psutil.Process(of).children(recursive=recursive):
        with contextlib.suppress(psutil.NoSuchProcess):
            if word in child.cmdline():
                found.append(child)
    return found


def descendants(pid: int) -> list[int]:
    """Return the ids of all descendants of a process; none if it has ended."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return [child.pid for child in psutil.Process(pid).children(recursive=True)]
    return []

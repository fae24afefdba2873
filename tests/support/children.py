"""The child processes of one, found by what they run."""

from __future__ import annotations

import contextlib

import psutil


def children(word: str, of: int | None = None, *, recursive: bool = False) -> list[psutil.Process]:
    """Those of the process `of` (else of this one) with `word` among their arguments.

    One that ends while it is looked at is none of them any more.

    Args:
        word: a whole argument.
        of: process id.
        recursive: theirs as well.
    """
    found = []
    for child in psutil.Process(of).children(recursive=recursive):
        with contextlib.suppress(psutil.NoSuchProcess):
            if word in child.cmdline():
                found.append(child)
    return found


def descendants(pid: int) -> list[int]:
    """Ids of all processes below one; none where that has ended."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return [child.pid for child in psutil.Process(pid).children(recursive=True)]
    return []

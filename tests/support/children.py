"""The child processes of one, found by what they run."""

from __future__ import annotations

import contextlib

import psutil


def children(word: str, of: int | None = None) -> list[psutil.Process]:
    """Those of the process `of` (else of this one) with `word` among their arguments.

    One that ends while it is looked at is none of them any more.
    """
    found = []
    for child in psutil.Process(of).children():
        with contextlib.suppress(psutil.NoSuchProcess):
            if word in child.cmdline():
                found.append(child)
    return found

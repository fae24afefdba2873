"""What a process of the relay says for people, on an output that it shares with the others."""

from __future__ import annotations

import sys
from typing import TextIO


def say(text: str, to: TextIO | None = None) -> None:
    """Write lines at once.

    `print` writes the end of a line by itself where Python does not buffer (`PYTHONUNBUFFERED`, in
    most containers), and a log line of another process comes between.

    Args:
        text: without the last line end.
        to: the standard output unless given.
    """
    output = to or sys.stdout
    output.write(f"{text}\n")
    output.flush()

"""Messages to people from a process of the relay, on an output shared with other processes."""

from __future__ import annotations

import sys
from typing import TextIO


def say(text: str, to: TextIO | None = None) -> None:
    """Write lines in a single call.

    `print` writes the end of a line separately if Python does not buffer (`PYTHONUNBUFFERED`, in
    most containers), so that a log line of another process can come between.

    Args:
        text: Text without the final line end.
        to: Output; standard output if None.
    """
    output = to or sys.stdout
    output.write(f"{text}\n")
    output.flush()

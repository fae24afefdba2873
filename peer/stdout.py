"""Handling of a standard output that can no longer be written to."""

from __future__ import annotations

import errno
import os
import sys
from typing import Final

UNWRITABLE: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Error codes of a disk that accepts no more data."""


def given_up(error: OSError) -> str:
    """Discard what is left to be written to standard output.

    Returns:
        Message for the user; empty if the reader, such as `head`, has closed the pipe.

    Raises:
        OSError: the error does not concern standard output.
    """
    if not isinstance(error, BrokenPipeError) and error.errno not in UNWRITABLE:
        raise error
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(error, BrokenPipeError):
        return ""
    return f"the output was not written: {error.strerror}"

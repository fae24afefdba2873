"""What a program does whose standard output takes no more."""

from __future__ import annotations

import errno
import os
import sys
from typing import Final

UNWRITABLE: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""What a disk says that takes no more."""


def given_up(error: OSError) -> str:
    """Forgets what is left to be written.

    Returns:
        What to tell the user; nothing where the reader, such as `head`, has seen enough.

    Raises:
        OSError: it is none of standard output.
    """
    if not isinstance(error, BrokenPipeError) and error.errno not in UNWRITABLE:
        raise error
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(error, BrokenPipeError):
        return ""
    return f"the output was not written: {error.strerror}"

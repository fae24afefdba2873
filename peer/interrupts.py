"""Ctrl-C while a command still imports what it needs.

That takes some tenths of a second, in which Python would show where in somebody's module it was
interrupted. So the entry points import nothing, and let the system end the process meanwhile.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Within it Ctrl-C ends the process without a word; unless somebody else handles it."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)

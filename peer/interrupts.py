"""Handling of Ctrl-C while a command still imports its modules.

The imports take some tenths of a second, and interrupting them would print a traceback from the
middle of some module. So the entry points import nothing at first, and during the imports the
operating system's default action ends the process.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Let Ctrl-C end the process without a message, unless another handler is installed."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)

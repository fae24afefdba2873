"""A thread that runs for the duration of a block."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def working_beside(name: str, work: Callable[[threading.Event], None]) -> Iterator[None]:
    """Run `work` in a thread of this name; the end of the block sets its event and waits for it.

    Args:
        work: Function that returns soon after the event is set.
    """
    stop = threading.Event()
    thread = threading.Thread(target=work, args=(stop,), name=name)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()

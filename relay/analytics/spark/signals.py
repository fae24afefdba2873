"""Signals that stop a command: Ctrl-C in a terminal (SIGINT), a service or `kill` (SIGTERM)."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Final

STOPS: Final = (signal.SIGINT, signal.SIGTERM)

AGAIN_S: Final = 0.05
"""Seconds until an interruption that was swallowed is repeated."""


@contextlib.contextmanager
def taken(handler: Callable[[int, FrameType | None], Any]) -> Iterator[None]:
    """Call `handler` for signals that stop the command in the block; only in the main thread."""
    if not _in_main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in STOPS}
    try:
        yield
    finally:
        for number, its in before.items():
            signal.signal(number, its)


@contextlib.contextmanager
def interrupting() -> Iterator[None]:
    """Let signals that stop the command interrupt the block, whatever it does.

    Raises:
        KeyboardInterrupt: a signal came.
    """
    with _heard(), taken(signal.default_int_handler):
        yield


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """Defer signals that stop the command to the end of the block, even if that is an error."""
    came: list[int] = []
    try:
        with taken(lambda number, frame: came.append(number)):
            yield
    finally:
        if came:
            signal.raise_signal(came[0])


@contextlib.contextmanager
def kept(number: signal.Signals) -> Iterator[None]:
    """Restore the handler of a signal after the block, whatever the block sets."""
    before = signal.getsignal(number)
    try:
        yield
    finally:
        if _in_main_thread():
            signal.signal(number, before)


@contextlib.contextmanager
def _heard() -> Iterator[None]:
    """Repeat interruptions of a finaliser, such as py4j has for each object.

    Python would only print them.
    """
    before = sys.unraisablehook

    def unraisable(told: Any) -> None:
        if told.exc_type is not KeyboardInterrupt:
            before(told)
            return
        main = threading.main_thread().ident
        again = threading.Timer(AGAIN_S, signal.pthread_kill, (main, signal.SIGINT))
        again.daemon = True
        again.start()

    sys.unraisablehook = unraisable
    try:
        yield
    finally:
        sys.unraisablehook = before


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()

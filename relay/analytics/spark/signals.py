"""Who stops a command: Ctrl-C in a terminal (SIGINT), a service or `kill` (SIGTERM)."""

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
"""After an interruption that nobody heard of."""


@contextlib.contextmanager
def taken(handler: Callable[[int, FrameType | None], Any]) -> Iterator[None]:
    """Inside, `handler` is called when somebody stops the command; only in the main thread."""
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
    """Inside, who stops the command ends what is done just now, wherever it is.

    Raises:
        KeyboardInterrupt: somebody did.
    """
    with _heard(), taken(signal.default_int_handler):
        yield


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """Who stops the command inside does so at its end, even if that is an error."""
    came: list[int] = []
    try:
        with taken(lambda number, frame: came.append(number)):
            yield
    finally:
        if came:
            signal.raise_signal(came[0])


@contextlib.contextmanager
def kept(number: signal.Signals) -> Iterator[None]:
    """Whoever takes a signal inside has it no longer afterwards."""
    before = signal.getsignal(number)
    try:
        yield
    finally:
        if _in_main_thread():
            signal.signal(number, before)


@contextlib.contextmanager
def _heard() -> Iterator[None]:
    """An interruption of a finaliser, such as py4j has for each object, would only be printed."""
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

"""Tasks of a broker that is full, run where they would have been handed over from.

The broker is the relay's own Redis. Out of memory it takes no task, and it may be the outbox that
fills it, which only a task empties: without this a relay whose Celery workers begin in that moment
would stay full. Celery's processes `allow` it; relay workers, which start tasks as well, do not run
them: the schedule comes to the same task within seconds.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, Final

from django.db import connections

logger = logging.getLogger(__name__)

FULL: Final = "command not allowed when used memory > 'maxmemory'"
"""What Redis says; the transport of tasks gives its errors other types and words around them."""

Body = Callable[..., Any]

_lock: Final = threading.Lock()
_running: Final[dict[tuple[Any, ...], threading.Thread]] = {}
_find: list[Callable[[str], Body]] = []


def allow(find: Callable[[str], Body]) -> None:
    """Let this process run tasks.

    Args:
        find: the body of a task, by its name.
    """
    _find[:] = [find]


def run(task: str, arguments: tuple[Any, ...]) -> bool:
    """Begin a task in a thread of this process.

    Returns:
        Whether it was begun: not where that is not allowed, nor where the same one still runs.
    """
    if not _find:
        return False
    which = (task, *arguments)
    thread = threading.Thread(target=_run, args=(which, _find[0](task)), name=task, daemon=True)
    with _lock:
        if which in _running:
            return False
        _running[which] = thread
    thread.start()
    return True


def join() -> None:
    """Wait for those that run, which have been told to end (`background.stopping`)."""
    with _lock:
        threads = list(_running.values())
    for thread in threads:
        thread.join()


def _run(which: tuple[Any, ...], body: Body) -> None:
    task, *arguments = which
    try:
        body(*arguments)
    except Exception as error:  # as in a worker of Celery, where it would end one task
        logger.warning("%s failed, run here as redis is full: %s", task, error)
    finally:
        connections.close_all()
        with _lock:
            del _running[which]

"""Runs tasks that a full broker cannot take in the process that starts them.

The broker is the relay's own Redis. Out of memory it takes no tasks, and the memory may be filled
by the outbox, which only a task empties: without this module, a relay whose Celery workers start at
that moment would stay full. Celery's processes `allow` it. Relay workers, which also start tasks,
do not run them: the schedule starts the same task within seconds.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, Final

from django.db import connections

logger = logging.getLogger(__name__)

FULL: Final = "command not allowed when used memory > 'maxmemory'"
"""Error text of Redis; the transport of tasks wraps it in other exception types and texts."""

Body = Callable[..., Any]

_lock: Final = threading.Lock()
_running: Final[dict[tuple[Any, ...], threading.Thread]] = {}
_find: list[Callable[[str], Body]] = []


def allow(find: Callable[[str], Body]) -> None:
    """Allow this process to run tasks.

    Args:
        find: Returns the body of a task, by its name.
    """
    _find[:] = [find]


def run(task: str, arguments: tuple[Any, ...]) -> bool:
    """Start a task in a thread of this process.

    Returns:
        Whether it was started: not if this is not allowed, or if the same task still runs.
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
    """Wait for running tasks, which have been asked to end (`background.stopping`)."""
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

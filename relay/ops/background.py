"""Background work as the relay sees it: start a task, end it in time, see which process runs it.

The bodies of tasks are plain functions. The application that runs them (Celery) belongs to the site
and is named by a string, like Django's settings. It is imported when the first task is started:
relay workers call `start` from a thread.
"""

from __future__ import annotations

import importlib
import logging
import os
import socket
import threading
import time
from collections.abc import Iterable
from typing import Any, Final

from redis import Redis
from redis.exceptions import RedisError

from relay.ops import run_here, task_record
from relay.ops.redis_client import client

logger = logging.getLogger(__name__)

APPLICATION: Final = "rmbsite.celery"
KEY_PREFIX: Final = "relay:celery:"
"""Prefix of every key of the message broker, which is the relay's own Redis."""

FEDERATION: Final = "federation"
CHAIN: Final = "chain"
DEFAULT: Final = "default"
QUEUES: Final = (FEDERATION, CHAIN, DEFAULT)

MAX_WAITING: Final = 1000
"""Maximum number of tasks that wait in one queue. The schedule repeats every start, so without a
running worker tasks would only pile up."""

EXPIRES_S: Final = 60.0
"""Seconds after which a task that no worker took expires: its start has been repeated since."""

SENT_AT: Final = "relay_sent_at"
"""Header of a task's message: Unix time at which the task was started."""

HEARTBEAT_S: Final = 5.0
HEARTBEAT_LIFE_S: Final = 20
SUCCESSOR_S: Final = 60
"""Seconds for which a process that ended cleanly, as in a restart, is not reported as missing."""


class NotStartedError(Exception):
    """A task could not be handed over to the Celery workers; the text says why."""


stopping: Final = threading.Event()
"""Set when this process's Celery worker is asked to stop; long tasks check it."""

_heart_lock: Final = threading.Lock()
_heart: list[threading.Thread] = []


def start(task: str, *arguments: Any, expires_s: float = EXPIRES_S) -> bool:
    """Let a Celery worker run a task soon. Blocks for one or two round trips.

    If Redis is too full to take it and this is a Celery process, the task runs here.

    Returns:
        Whether it was started; if not, the reason is logged and the schedule repeats it.
    """
    try:
        hand_over(task, *arguments, expires_s=expires_s)
    except NotStartedError as error:
        if run_here.FULL in str(error) and run_here.run(task, arguments):
            logger.debug("%s is run here: %s", task, error)
            return True
        logger.warning("%s could not be started: %s", task, error)
        return False
    return True


def hand_over(task: str, *arguments: Any, expires_s: float = EXPIRES_S) -> None:
    """Start a task like `start`, for callers that report errors themselves.

    Raises:
        NotStartedError: Redis does not answer, or too many tasks wait.
    """
    app = importlib.import_module(APPLICATION).app
    queue = app.amqp.router.route({}, task)["queue"].name
    try:
        waiting = int(client().llen(f"{KEY_PREFIX}{queue}"))
        if waiting < MAX_WAITING:
            sent = {SENT_AT: round(time.time(), 3)}
            app.send_task(task, arguments, expires=expires_s, retry=False, headers=sent)
            return
    except Exception as error:  # the transport lets errors of several libraries through
        raise NotStartedError(str(error)) from error
    raise NotStartedError(f"{waiting} tasks wait in queue {queue}: does its Celery worker run?")


def begin_heartbeat(queues: Iterable[str]) -> bool:
    """Begin to report in Redis that this process takes tasks from `queues`.

    Returns:
        Whether it was begun now: a worker that reconnects begins only once.
    """
    with _heart_lock:
        if _heart:
            return False
        thread = threading.Thread(
            target=_beat, args=(tuple(queues),), name="heartbeat", daemon=True
        )
        _heart.append(thread)
        thread.start()
        return True


def queues_without_worker(connection: Redis) -> list[str]:
    """Return the queues from which no process takes tasks.

    Raises:
        redis.exceptions.RedisError: Redis does not answer.
    """
    alive = connection.mget([_alive(queue) for queue in QUEUES])
    return [queue for queue, found in zip(QUEUES, alive, strict=True) if found is None]


def _beat(queues: tuple[str, ...]) -> None:
    value = f"{socket.gethostname()} {os.getpid()}"
    ends = False
    while True:
        try:
            with client().pipeline(transaction=False) as pipe:
                for queue in queues:
                    pipe.set(_alive(queue), value, ex=SUCCESSOR_S if ends else HEARTBEAT_LIFE_S)
                pipe.execute()
            task_record.alive()
        except RedisError as error:
            logger.debug("no heartbeat: %s", error)  # others report this more prominently
        if ends:
            return
        ends = stopping.wait(HEARTBEAT_S)


def _alive(queue: str) -> str:
    return f"relay:background:{queue}"

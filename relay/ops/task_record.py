"""Record of background tasks, kept by the processes that run them: running tasks, and failures.

    relay:background:processes            sorted set: host/pid -> last sign of life
    relay:background:running:<host/pid>   hash: task id -> what runs; gone 20 s after its process
    relay:background:failed               list: the latest failures, the newest first

Celery provides neither: results are not stored, and its workers have remote control turned off.
Recording never disturbs a task: without Redis it is skipped.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import re
import socket
import time
from collections.abc import Iterable, Sequence
from typing import Any, Final
from urllib.parse import quote

from django.conf import settings
from redis.exceptions import RedisError

from chain.urls import hide_credentials
from redispipe.address import RedisAddress
from relay.ops.redis_client import client

logger = logging.getLogger(__name__)

PROCESSES: Final = "relay:background:processes"
FAILED: Final = "relay:background:failed"
LIFE_S: Final = 20
MAX_FAILED: Final = 200
KEPT_S: Final = 7 * 86_400
MAX_ERROR_CHARS: Final = 500
MAX_ARGUMENTS_CHARS: Final = 200

_NAMED_SECRET: Final = re.compile(r"(?i)\b(password|passwd|secret|token|jwt)(['\"]?\s*[=:]\s*)\S+")
_HIDDEN: Final = "***"


def process() -> str:
    """Return the name of this process."""
    return f"{socket.gethostname()}/{os.getpid()}"


def running_key(name: str) -> str:
    """Return the hash with the tasks that a process runs."""
    return f"relay:background:running:{name}"


def alive() -> None:
    """Record that this process is alive; called every few seconds.

    Raises:
        redis.exceptions.RedisError: Redis does not answer.
    """
    now = time.time()
    with client().pipeline(transaction=False) as pipe:
        pipe.zadd(PROCESSES, {process(): now})
        pipe.zremrangebyscore(PROCESSES, "-inf", now - LIFE_S)
        pipe.expire(running_key(process()), LIFE_S)
        pipe.execute()


def began(task_id: str, task: str, arguments: Sequence[Any]) -> None:
    """Record that a task runs in this process."""
    note = {"task": task, "arguments": _short(arguments), "at": round(time.time(), 3)}
    try:
        with client().pipeline(transaction=True) as pipe:
            pipe.hset(running_key(process()), task_id, json.dumps(note))
            pipe.expire(running_key(process()), LIFE_S)
            pipe.execute()
    except RedisError as error:
        logger.debug("%s is not noted: %s", task, error)


def ended(task_id: str) -> None:
    """Record that a task has ended, successfully or not."""
    try:
        client().hdel(running_key(process()), task_id)
    except RedisError as error:
        logger.debug("the end of a task is not noted: %s", error)  # it expires after the process


def failed(task_id: str, task: str, arguments: Sequence[Any], error: BaseException) -> None:
    """Record that a task ended with an unexpected error."""
    note = {
        "id": task_id,
        "task": task,
        "arguments": _kept(arguments),
        "at": round(time.time(), 3),
        "error": without_secrets(f"{type(error).__name__}: {error}")[:MAX_ERROR_CHARS],
        "worker": process(),
    }
    try:
        with client().pipeline(transaction=True) as pipe:
            pipe.lpush(FAILED, json.dumps(note))
            pipe.ltrim(FAILED, 0, MAX_FAILED - 1)
            pipe.expire(FAILED, KEPT_S)
            pipe.execute()
    except RedisError as redis_error:
        logger.debug("the failure of %s is not noted: %s", task, redis_error)


def without_secrets(message: str) -> str:
    """Remove secrets from a text: libraries include URLs with passwords in their errors."""
    for secret in _secrets():
        message = message.replace(secret, _HIDDEN)
    message = hide_credentials(message)
    return _NAMED_SECRET.sub(rf"\1\2{_HIDDEN}", message)


@functools.cache
def _secrets() -> tuple[str, ...]:
    redis = RedisAddress.parse(settings.RMB.redis.url)
    found: Iterable[str | None] = (
        settings.SECRET_KEY,
        *settings.SECRET_KEY_FALLBACKS,
        redis.password,
        quote(redis.password, safe=""),
        *(database.get("PASSWORD") for database in settings.DATABASES.values()),
    )
    return tuple(secret for secret in found if secret)


def _kept(arguments: Sequence[Any]) -> list[Any] | None:
    """Return the arguments with which a task can be retried; None if they are too large to keep."""
    try:
        document = json.dumps(list(arguments))
    except (TypeError, ValueError):
        return None
    return list(arguments) if len(document) <= MAX_ARGUMENTS_CHARS else None


def _short(arguments: Sequence[Any]) -> str:
    return without_secrets(", ".join(map(repr, arguments)))[:MAX_ARGUMENTS_CHARS]

"""Background work as operators see it: what waits, what runs, what failed; starting it again.

Most of it is started by the schedule every few seconds, and each task takes a lease before it does
anything. So starting one again beside another that runs does no harm, and does nothing; and a task
that was lost with its worker is begun anew by the schedule, long before the message broker gives it
out a second time (after an hour: tasks are acknowledged when they end).
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from redis.exceptions import RedisError

from relay.access.actor import Actor
from relay.access.errors import Away, Conflict, NotFound
from relay.audit import services as audit
from relay.ops import background, task_record
from relay.ops.redis_client import client, text

logger = logging.getLogger(__name__)

UNACKNOWLEDGED: Final = f"{background.KEY_PREFIX}unacked_index"


@dataclass(frozen=True, slots=True)
class TaskQueue:
    """One queue of the message broker.

    Attributes:
        waiting: tasks nobody has taken yet.
        oldest_s: age of the first of them; None without any, or where it does not say.
        taken: whether some process takes tasks from it.
    """

    name: str
    waiting: int
    oldest_s: float | None
    taken: bool


@dataclass(frozen=True, slots=True)
class RunningTask:
    """A task that runs now.

    Attributes:
        arguments: as text.
        worker: host/pid of its process.
    """

    id: str
    task: str
    arguments: str
    since: float
    worker: str


@dataclass(frozen=True, slots=True)
class FailedTask:
    """A task that ended with an unexpected error.

    Attributes:
        arguments: None where there were too many to be kept; it cannot be started again.
        error: without secrets, and cut.
    """

    id: str
    task: str
    arguments: list[Any] | None
    at: float
    error: str
    worker: str


def queues() -> list[TaskQueue]:
    """The queues, each with what waits in it.

    Raises:
        Away: Redis does not answer.
    """
    now = time.time()
    try:
        idle = background.queues_without_worker(client())
        with client().pipeline(transaction=False) as pipe:
            for name in background.QUEUES:
                pipe.llen(f"{background.KEY_PREFIX}{name}")
                pipe.lindex(f"{background.KEY_PREFIX}{name}", -1)  # taken from this end
            replies: list[Any] = pipe.execute()
    except RedisError as error:
        raise _away(error) from error
    return [
        TaskQueue(name, int(waiting), _age_s(oldest, now), name not in idle)
        for name, waiting, oldest in zip(
            background.QUEUES, replies[::2], replies[1::2], strict=True
        )
    ]


def unacknowledged() -> int:
    """Tasks that were taken and have not ended: running ones, and those lost with their worker.

    Raises:
        Away: Redis does not answer.
    """
    try:
        return int(client().zcard(UNACKNOWLEDGED))
    except RedisError as error:
        raise _away(error) from error


def running() -> list[RunningTask]:
    """What runs now, the longest first.

    Raises:
        Away: Redis does not answer.
    """
    try:
        members: Any = client().zrange(task_record.PROCESSES, 0, -1)
        names = [text(member) for member in members]
        with client().pipeline(transaction=False) as pipe:
            for name in names:
                pipe.hgetall(task_record.running_key(name))
            hashes: list[Any] = pipe.execute()
    except RedisError as error:
        raise _away(error) from error
    found = []
    for name, fields in zip(names, hashes, strict=True):
        for task_id, document in fields.items():
            note = json.loads(document)
            found.append(
                RunningTask(text(task_id), note["task"], note["arguments"], note["at"], name)
            )
    return sorted(found, key=lambda each: (each.since, each.id))


def failed(limit: int = task_record.MAX_FAILED) -> list[FailedTask]:
    """The latest failures, the newest first; the last two hundred are kept, for a week.

    Raises:
        Away: Redis does not answer.
    """
    try:
        documents: Any = client().lrange(task_record.FAILED, 0, max(1, limit) - 1)
    except RedisError as error:
        raise _away(error) from error
    return [FailedTask(**json.loads(document)) for document in documents]


def retry(task_id: str, *, actor: Actor) -> str:
    """Retry a failed task and remove it from the list.

    Returns:
        Its name.

    Raises:
        Denied
        NotFound: no such failure is known.
        Conflict: its arguments were not kept, or too many tasks wait.
        Away: Redis does not answer.
    """
    with audit.change(actor, "task.retry", target=task_id) as change:
        document, task = _find(task_id)
        change.before = {"task": task.task, "arguments": task.arguments, "error": task.error}
        if task.arguments is None:
            raise Conflict(f"{task.task} had more arguments than were kept")
        try:
            background.hand_over(task.task, *task.arguments)
        except background.NotStartedError as error:
            raise Conflict(f"{task.task} could not be started: {error}") from error
        try:
            client().lrem(task_record.FAILED, 1, document)
        except RedisError as error:
            # It is started: that stays true, and starting it once more does no harm.
            logger.warning("%s is started again, but still on the list: %s", task.task, error)
    return task.task


def forget(task_id: str, *, actor: Actor) -> None:
    """Remove a failed task from the list.

    Raises:
        Denied, NotFound, Away
    """
    with audit.change(actor, "task.forget", target=task_id) as change:
        document, task = _find(task_id)
        change.before = {"task": task.task, "error": task.error}
        client().lrem(task_record.FAILED, 1, document)


def _find(task_id: str) -> tuple[Any, FailedTask]:
    """The note of a failure. Within a change nobody else takes it off the list meanwhile."""
    documents: Any = client().lrange(task_record.FAILED, 0, -1)
    for document in documents:
        task = FailedTask(**json.loads(document))
        if task.id == task_id:
            return document, task
    raise NotFound(f"no failure of a task {task_id} is known")


def _age_s(message: bytes | None, now: float) -> float | None:
    """How long ago a message of the broker was sent, by the header `background.start` gives it."""
    if message is None:
        return None
    try:
        headers: Mapping[str, Any] = json.loads(message)["headers"]
        return round(max(0.0, now - float(headers[background.SENT_AT])), 3)
    except (ValueError, KeyError, TypeError):
        return None


def _away(error: RedisError) -> Away:
    return Away(f"Redis does not answer: {error}")

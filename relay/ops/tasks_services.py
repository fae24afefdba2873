"""Background work as operators see it: waiting, running and failed tasks; retrying them.

The schedule starts most tasks every few seconds, and each task takes a lease before it does
anything. So a second task of the same kind ends at once and does no harm. If a task was lost with
its worker, the schedule starts it again, long before the message broker delivers it a second time
(after an hour: tasks are acknowledged when they end).
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
        waiting: Number of tasks that no process has taken yet.
        oldest_s: Age of the first waiting task, in seconds; None for an empty queue or an unknown
            age.
        taken: Whether a process takes tasks from the queue.
    """

    name: str
    waiting: int
    oldest_s: float | None
    taken: bool


@dataclass(frozen=True, slots=True)
class RunningTask:
    """A task that runs now.

    Attributes:
        arguments: Arguments, as text.
        worker: Process that runs it, as host/pid.
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
        arguments: Arguments; None if they were too large to keep, so that it cannot be retried.
        error: Error message without secrets, truncated.
    """

    id: str
    task: str
    arguments: list[Any] | None
    at: float
    error: str
    worker: str


def queues() -> list[TaskQueue]:
    """Return the queues with their waiting tasks.

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
    """Return the number of tasks taken and not ended: running, or lost with their worker.

    Raises:
        Away: Redis does not answer.
    """
    try:
        return int(client().zcard(UNACKNOWLEDGED))
    except RedisError as error:
        raise _away(error) from error


def running() -> list[RunningTask]:
    """Return the running tasks, the longest-running first.

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
    """Return the latest failures, the newest first; the last two hundred are kept, for a week.

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
        Name of the task.

    Raises:
        Denied
        NotFound: There is no such failure.
        Conflict: Its arguments were not kept, or too many tasks wait.
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
            # The task is started nevertheless, and starting it once more does no harm.
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
    """Return the record of a failure. Within a change no other process removes it from the list."""
    documents: Any = client().lrange(task_record.FAILED, 0, -1)
    for document in documents:
        task = FailedTask(**json.loads(document))
        if task.id == task_id:
            return document, task
    raise NotFound(f"no failure of a task {task_id} is known")


def _age_s(message: bytes | None, now: float) -> float | None:
    """Return the seconds since `background.start` sent a message of the broker, from its header."""
    if message is None:
        return None
    try:
        headers: Mapping[str, Any] = json.loads(message)["headers"]
        return round(max(0.0, now - float(headers[background.SENT_AT])), 3)
    except (ValueError, KeyError, TypeError):
        return None


def _away(error: RedisError) -> Away:
    return Away(f"Redis does not answer: {error}")

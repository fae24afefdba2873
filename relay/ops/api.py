"""Relay workers and background work over REST."""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any, Final, Literal

from asgiref.sync import sync_to_async
from ninja import Field, Query, Router, Schema

from relay.ops import counters, log_feed, nodes, redis_use, services, tasks_services
from relay.ops.services import WorkerRow
from relay.rest import events
from relay.rest.caller import Request
from relay.rest.operation import delete, get, post
from relay.rest.paging import page_list
from relay.rest.schema import Page, PageQuery, moment

router = Router(tags=["workers"])
EVENT_NUMBER: Final = re.compile("[0-9]{1,15}")

BootId = Annotated[str, Field(min_length=1, max_length=64, description="Boot id of the worker.")]
TaskId = Annotated[str, Field(min_length=1, max_length=200, description="Id of the task.")]


class WorkerOut(Schema):
    """One worker process."""

    boot_id: str
    host: str
    slot: str
    pid: int
    state: str = Field(
        description="ok, starting, draining, redis_away, storage_full, disk_full, redis_refuses, "
        "redis_policy or silent."
    )
    started: datetime | None
    uptime_s: float
    heartbeat: datetime | None
    sessions: int = Field(description="Sessions of RMB.")
    sbd_sessions: int = Field(description="SBD connections whose clients have proven their keys.")
    loop_lag_ms: float = Field(description="Highest delay of the event loop in the last second.")
    commit_p50_ms: float | None = Field(description="Median over the last minute; null: no commit.")
    commit_p99_ms: float | None
    memory_bytes: int = Field(
        description="Memory of the process; 0: its system does not report it."
    )

    @staticmethod
    def of(row: WorkerRow) -> WorkerOut:
        times = {"started": moment(row.started), "heartbeat": moment(row.heartbeat)}
        return WorkerOut(**{**asdict(row), **times})


class CountersOut(Schema):
    """Figures at one moment."""

    at: float = Field(description="Seconds of a clock that is not set.")
    workers: list[dict[str, Any]] = Field(description="Heartbeats, with the metrics of each.")
    federation: dict[str, float]
    partners: list[dict[str, Any]]
    chain: list[list[Any]] | None
    redis_bytes: int
    waiting: int | None = Field(description="Messages in all queues; null: not known.")
    purged: int


class LogLineOut(Schema):
    """A line of a worker's log."""

    at: float = Field(description="Unix time.")
    level: str
    logger: str
    text: str


class WorkerQuery(PageQuery):
    """Order of the list."""

    order: Literal["place", "-place", "sessions", "-sessions", "loop_lag_ms", "-loop_lag_ms"] = (
        "place"
    )


class Draining(Schema):
    """The worker that drains."""

    boot_id: str


class ProcessOut(Schema):
    """One process of the relay; null: its system does not report the value."""

    name: str
    pid: int
    rss_bytes: int | None = Field(description="Memory in use, including shared memory.")
    uss_bytes: int | None = Field(
        description="Memory that only this process uses; null also above 1 GiB."
    )
    cpu: float | None = Field(description="Cores in use over the last 10 s.")
    files: int | None = Field(description="Open files and sockets.")
    files_limit: int | None


class DiskOut(Schema):
    """Size of one part of the data, and its disk."""

    use: str
    path: str
    used_bytes: int
    partial: bool = Field(description="Whether there are more files than were counted.")
    free_bytes: int | None
    size_bytes: int | None


class NodeOut(Schema):
    """One machine of the relay, as its supervisor reported it within the last minute."""

    host: str
    pid: int = Field(description="Process id of the supervisor.")
    at: datetime | None
    cores: int
    load: list[float] = Field(description="Average load over 1, 5 and 15 minutes.")
    memory_bytes: int = Field(description="Memory of the machine, or the limit of its container.")
    memory_free_bytes: int | None
    processes: list[ProcessOut]
    disks: list[DiskOut]


class NodeQuery(PageQuery):
    """Order of the list."""

    order: Literal["name", "-name"] = "name"


class RedisUseOut(Schema):
    """Use of Redis' memory."""

    used_bytes: int
    rss_bytes: int = Field(description="Memory that the machine gives to its process.")
    limit_bytes: int = Field(description="`maxmemory`; 0: no limit.")
    keys: int
    sampled: int = Field(description="Number of measured keys, which the estimates are based on.")
    file_bytes: int = Field(description="Size of the append-only file; 0: there is no such file.")
    uses: dict[str, int] = Field(description="Bytes by use, the largest first; estimates.")


class TaskQueueOut(Schema):
    """One queue of background tasks."""

    name: str
    waiting: int = Field(description="Tasks that no process has taken yet.")
    oldest_s: float | None = Field(description="Age of the oldest waiting task, in seconds.")
    taken: bool = Field(description="Whether a process takes tasks from the queue.")


class RunningOut(Schema):
    """A task that runs now."""

    id: str
    task: str
    arguments: str
    since: datetime | None
    worker: str


class FailedOut(Schema):
    """A task that ended with an unexpected error."""

    id: str
    task: str
    arguments: list[Any] | None = Field(
        description="Arguments of the task; null: they were too large to keep, so it cannot be "
        "retried."
    )
    at: datetime | None
    error: str
    worker: str


class TaskQueueQuery(PageQuery):
    """Order of the list."""

    order: Literal["name", "-name", "waiting", "-waiting"] = "name"


class RunningQuery(PageQuery):
    """Order of the list."""

    order: Literal["since", "-since"] = "since"


class FailedQuery(PageQuery):
    """Order of the list."""

    order: Literal["at", "-at"] = "-at"


class Retried(Schema):
    """The task that was started."""

    id: str = Field(description="Id of the failure; the new task has another id.")
    task: str = Field(description="Its name.")


@get(router, "/workers", action="worker.view", answer=Page[WorkerOut])
def list_workers(request: Request, query: Query[WorkerQuery]) -> Any:
    """List workers with a heartbeat in the last 30 s."""
    orders = {
        "place": lambda row: f"{row.host}/{row.slot:>5}",
        "sessions": lambda row: row.sessions,
        "loop_lag_ms": lambda row: row.loop_lag_ms,
    }
    return page_list(
        query,
        services.list_workers(),
        orders,
        lambda row: row.boot_id,
        show=lambda found: map(WorkerOut.of, found),
    )


@get(router, "/workers/{worker}", action="worker.view", answer=WorkerOut)
def get_worker(request: Request, worker: BootId) -> Any:
    """Get a worker."""
    return WorkerOut.of(services.get_worker(worker))


@post(router, "/workers/{worker}/drain", action="worker.drain", answer=Draining)
def drain_worker(request: Request, worker: BootId) -> Any:
    """Drain a worker: it closes its sessions and ends.

    Its supervisor starts another in its place.
    """
    services.drain(worker, actor=request.actor)
    return Draining(boot_id=worker)


@get(router, path="/counters/live", action="worker.view", answer=CountersOut, events=True)
async def stream_counters(request: Request) -> Any:
    """Stream the figures of the relay, once a second.

    Counters count from the start of a worker: the activity is the difference of two events.
    """

    async def source(last_id: str) -> AsyncIterator[events.Event]:
        number = int(last_id or 0)
        async for document in counters.follow():
            number += 1
            yield events.Event(str(number), "counters", document)

    return await events.stream(request, "worker.view", source, ids=EVENT_NUMBER)


@get(router, path="/workers/{worker}/log", action="worker.view", answer=LogLineOut, events=True)
async def stream_worker_log(request: Request, worker: BootId) -> Any:
    """Stream the log of a worker, from level INFO on.

    An event named `skipped` has the number of missing lines.
    """
    boot_id = (await sync_to_async(services.get_worker)(worker)).boot_id

    async def source(last_id: str) -> AsyncIterator[events.Event]:
        number = int(last_id or 0)
        async with contextlib.aclosing(log_feed.follow(boot_id)) as lines:
            async for line in lines:
                number += 1
                yield events.Event(str(number), "skipped" if "skipped" in line else "line", line)

    return await events.stream(request, "worker.view", source, ids=EVENT_NUMBER)


@get(router, "/nodes", action="worker.view", answer=Page[NodeOut], tags=["nodes"])
def list_nodes(request: Request, query: Query[NodeQuery]) -> Any:
    """List the machines of the relay, with their processes and disks."""
    return page_list(
        query,
        nodes.list_nodes(),
        {"name": lambda each: each.name},
        lambda each: each.name,
        show=lambda found: ({**asdict(each), "at": moment(each.at)} for each in found),
    )


@get(router, "/nodes/redis", action="worker.view", answer=RedisUseOut, tags=["nodes"])
def get_redis_use(request: Request) -> Any:
    """Get the use of Redis' memory, estimated from a sample of its keys."""
    return asdict(redis_use.look())


@get(router, "/tasks/queues", action="task.view", answer=Page[TaskQueueOut], tags=["tasks"])
def list_task_queues(request: Request, query: Query[TaskQueueQuery]) -> Any:
    """List the queues of background tasks with their waiting tasks."""
    return page_list(
        query,
        tasks_services.queues(),
        {"name": lambda each: each.name, "waiting": lambda each: each.waiting},
        lambda each: each.name,
        show=lambda found: map(asdict, found),
    )


@get(router, "/tasks/running", action="task.view", answer=Page[RunningOut], tags=["tasks"])
def list_running_tasks(request: Request, query: Query[RunningQuery]) -> Any:
    """List running background tasks, the longest first."""
    return page_list(
        query,
        tasks_services.running(),
        {"since": lambda each: each.since},
        lambda each: each.id,
        show=lambda found: ({**asdict(each), "since": moment(each.since)} for each in found),
    )


@get(router, "/tasks/failed", action="task.view", answer=Page[FailedOut], tags=["tasks"])
def list_failed_tasks(request: Request, query: Query[FailedQuery]) -> Any:
    """List failed background tasks, the newest first.

    The relay keeps the last 200 failures, each for a week.
    """
    return page_list(
        query,
        tasks_services.failed(),
        {"at": lambda each: each.at},
        lambda each: each.id,
        show=lambda found: ({**asdict(each), "at": moment(each.at)} for each in found),
    )


@post(router, "/tasks/failed/{task}/retry", action="task.retry", answer=Retried, tags=["tasks"])
def retry_task(request: Request, task: TaskId) -> Any:
    """Retry a failed task and remove it from the list."""
    return Retried(id=task, task=tasks_services.retry(task, actor=request.actor))


@delete(
    router, "/tasks/failed/{task}", action="task.forget", answer=None, status=204, tags=["tasks"]
)
def forget_task(request: Request, task: TaskId) -> Any:
    """Remove a failed task from the list."""
    tasks_services.forget(task, actor=request.actor)

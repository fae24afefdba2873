"""The page of background work: Celery's queues, running tasks, and failed ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import reverse

from relay.access.actor import Actor
from relay.access.errors import NotFound
from relay.dashboard.acts import Question, act
from relay.dashboard.figures import Kind
from relay.dashboard.pages import may, page
from relay.dashboard.states import State, Tone
from relay.dashboard.tables import Action, Ask, Cell, Column, Fetch, Row, Table, respond_all
from relay.ops import tasks_services
from relay.ops.paging import Page
from relay.ops.tasks_services import FailedTask, RunningTask, TaskQueue

Item = TypeVar("Item")

QUEUES = (
    Column("queue", "Queue", Cell.TEXT),
    Column("state", "Worker", Cell.STATE, hint="whether a Celery worker serves the queue"),
    Column("waiting", "Waiting", Kind.NUMBER, hint="tasks not started yet"),
    Column("oldest_s", "Oldest", Kind.DURATION),
)
RUNNING = (
    Column("task", "Task", Cell.TEXT),
    Column("arguments", "Arguments", Cell.CODE),
    Column("since", "Since", Cell.MOMENT),
    Column("worker", "Process", Cell.TEXT, hint="host/process id"),
    Column("id", "Id", Cell.CODE, optional=True),
)
FAILED = (
    Column("at", "Failed", Cell.MOMENT),
    Column("task", "Task", Cell.TEXT),
    Column("arguments", "Arguments", Cell.CODE),
    Column("error", "Error", Cell.TEXT),
    Column("worker", "Process", Cell.TEXT, optional=True, hint="host/process id"),
    Column("id", "Id", Cell.CODE, optional=True),
)

TAKEN: Final = State("served", Tone.GOOD)
IDLE: Final = State("no worker", Tone.BAD, "no Celery worker serves this queue")


@page("task.view")
def tasks(request: HttpRequest) -> HttpResponseBase:
    """Show the queues of the broker, the running tasks, and the failures of a week."""
    retries = may(request, "task.retry")
    queues = Table(
        request, "task-queues", QUEUES, _all(tasks_services.queues, _queue),
        title="Queues", live=True, prefix="q-",
    )  # fmt: skip
    running = Table(
        request, "running-tasks", RUNNING, _all(tasks_services.running, _running),
        title="Running now", empty="No task runs now.", live=True, prefix="r-",
    )  # fmt: skip
    failed = Table(
        request, "failed-tasks", FAILED,
        _all(tasks_services.failed, lambda task: _failed(task, retries)),
        title="Failed", empty="No task failed in the last week.", live=True, prefix="f-",
    )  # fmt: skip
    tables = (queues, running, failed)
    return respond_all(request, tables, "relay_dashboard/tables.html", "Background tasks")


@page("task.retry")
def retry(request: HttpRequest, task_id: str) -> HttpResponseBase:
    """Start a failed task again."""
    task = _known(task_id)

    def perform(actor: Actor) -> str:
        return f"{tasks_services.retry(task_id, actor=actor)} is started again"

    question = Question(
        f"Start {_name(task)} again",
        "Start again",
        "This removes the task from the list of failures. If another task of this kind "
        "runs, the new one ends at once.",
    )
    return act(request, question, perform, reverse("console:tasks"))


@page("task.forget")
def forget(request: HttpRequest, task_id: str) -> HttpResponseBase:
    """Remove a failed task from the list."""
    task = _known(task_id)

    def perform(actor: Actor) -> str:
        tasks_services.forget(task_id, actor=actor)
        return f"The failure of {task.task} is removed"

    question = Question(
        f"Remove the failure of {_name(task)}",
        "Forget",
        loses=(f"the record of its error: {task.error}",),
        danger=True,
    )
    return act(request, question, perform, reverse("console:tasks"))


def _all(read: Callable[[], Iterable[Item]], show: Callable[[Item], Row]) -> Fetch:
    """Return a function that fetches a list, which is bounded already, as one page."""

    def fetch(ask: Ask) -> Page[Row]:
        return Page([show(each) for each in read()], "")

    return fetch


def _queue(queue: TaskQueue) -> Row:
    values = {
        "queue": queue.name,
        "state": TAKEN if queue.taken else IDLE,
        "waiting": queue.waiting,
        "oldest_s": queue.oldest_s,
    }
    return Row(values)


def _running(task: RunningTask) -> Row:
    values = {
        "task": task.task,
        "arguments": task.arguments,
        "since": task.since,
        "worker": task.worker,
        "id": task.id,
    }
    return Row(values)


def _failed(task: FailedTask, retries: bool) -> Row:
    values = {
        "at": task.at,
        "task": task.task,
        "arguments": _arguments(task.arguments),
        "error": task.error,
        "worker": task.worker,
        "id": task.id,
    }
    actions = []
    if retries:
        if task.arguments is not None:
            actions.append(Action("Retry", reverse("console:task_retry", args=[task.id])))
        actions.append(Action("Forget", reverse("console:task_forget", args=[task.id]), True))
    return Row(values, actions=actions)


def _arguments(arguments: list[Any] | None) -> str:
    return "too many" if arguments is None else ", ".join(map(repr, arguments))


def _name(task: FailedTask) -> str:
    return f"{task.task}({_arguments(task.arguments)})"


def _known(task_id: str) -> FailedTask:
    for task in tasks_services.failed():
        if task.id == task_id:
            return task
    raise NotFound(f"no failure of a task {task_id} is known")

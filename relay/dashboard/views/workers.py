"""Pages of workers, the processes that hold sessions: the list of all, and draining one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from django.conf import settings
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import reverse

from relay.access.actor import Actor
from relay.dashboard.acts import Question, act
from relay.dashboard.figures import Kind
from relay.dashboard.pages import may, page
from relay.dashboard.states import SEVERITY, State, Tone
from relay.dashboard.tables import Action, Ask, Cell, Column, Row, Table, respond
from relay.ops import services
from relay.ops.paging import Page, one_of, page_of
from relay.ops.services import WorkerRow
from relay.ops.wording import duration

COLUMNS = (
    Column("name", "Worker", Cell.TEXT, order="name", hint="host/number"),
    Column("state", "State", Cell.STATE, order="state"),
    Column("sessions", "Sessions", Kind.NUMBER, order="sessions", hint="of RMB and SBD"),
    Column("sbd_sessions", "SBD sessions", Kind.NUMBER, optional=True),
    Column("loop_lag_s", "Loop lag", Kind.DURATION, order="lag",
           hint="worst delay of its event loop in the last second"),
    Column("commit_p50_s", "Commit p50", Kind.DURATION, optional=True,
           hint="median duration of group commits in the last minute"),
    Column("commit_p99_s", "Commit p99", Kind.DURATION, order="p99",
           hint="99th percentile of the duration of group commits in the last minute"),
    Column("memory_bytes", "Memory", Kind.BYTES, order="memory"),
    Column("uptime_s", "Up for", Kind.DURATION, order="uptime"),
    Column("heartbeat", "Heartbeat", Cell.MOMENT, hint="expected every second"),
    Column("pid", "Process", Cell.TEXT, optional=True),
    Column("boot_id", "Boot id", Cell.CODE, optional=True, hint="identifies this process"),
)  # fmt: skip

STATES: Final = {
    "ok": State("ok", Tone.GOOD),
    "starting": State("starting", Tone.INFO, "the worker does not accept sessions yet"),
    "draining": State("draining", Tone.INFO, "the worker closes its sessions and ends"),
    "silent": State("silent", Tone.BAD, "heartbeats are missing"),
    "redis_refuses": State("Redis refuses", Tone.BAD, "Redis refuses writes"),
    "redis_away": State("Redis away", Tone.BAD, "Redis does not answer"),
    "storage_full": State("storage full", Tone.BAD, "Redis is out of memory"),
    "disk_full": State("disk full", Tone.BAD, "Redis cannot write to its disk"),
    "redis_policy": State("Redis policy", Tone.BAD, "Redis may delete keys: see rmb_doctor"),
}
ORDERS: Final[dict[str, Callable[[WorkerRow], float | str]]] = {
    "name": lambda worker: f"{worker.host}/{worker.slot:>4}",
    "state": lambda worker: SEVERITY[_state(worker).tone],
    "sessions": lambda worker: worker.all_sessions,
    "lag": lambda worker: worker.loop_lag_ms,
    "p99": lambda worker: worker.commit_p99_ms or 0.0,
    "memory": lambda worker: worker.memory_bytes,
    "uptime": lambda worker: worker.uptime_s,
}


@page("worker.view")
def workers(request: HttpRequest) -> HttpResponseBase:
    """List all workers with a heartbeat."""
    drainable = may(request, "worker.drain")

    def fetch(ask: Ask) -> Page[Row]:
        value = ORDERS[one_of(ask.order, tuple(ORDERS))[0]]
        found, following = page_of(
            services.list_workers(),
            lambda worker: (value(worker), worker.boot_id),
            ask.order, ask.limit, ask.cursor,
        )  # fmt: skip
        return Page([_row(worker, drainable) for worker in found], following)

    table = Table(
        request, "workers", COLUMNS, fetch, order="name", live=True,
        empty="No worker sends heartbeats: no relay runs on this Redis.",
    )  # fmt: skip
    return respond(request, table, "relay_dashboard/workers.html", "Workers")


@page("worker.drain")
def drain(request: HttpRequest, boot_id: str) -> HttpResponseBase:
    """Drain one worker."""
    worker = services.get_worker(boot_id)
    name = f"{worker.host}/{worker.slot}"
    drain_s = settings.RMB.relay.drain_s

    def perform(actor: Actor) -> str:
        services.drain(boot_id, actor=actor)
        return f"Worker {name} closes its sessions and is replaced"

    held = worker.all_sessions
    some = f"Its {held:,} sessions" if held else "The worker has no sessions. Any"
    question = Question(
        f"Drain worker {name}",
        "Drain",
        f"{some} are closed within {duration(drain_s)} (code 1012), and their clients "
        "reconnect to other workers. Undelivered messages wait in their queues. Then the "
        "process ends, and its supervisor starts a new worker.",
    )
    return act(request, question, perform, reverse("console:workers"))


def _state(worker: WorkerRow) -> State:
    return STATES.get(worker.state, State(worker.state or "unknown", Tone.WARNING))


def _row(worker: WorkerRow, drainable: bool) -> Row:
    values = {
        "name": f"{worker.host}/{worker.slot}",
        "state": _state(worker),
        "sessions": worker.all_sessions,
        "sbd_sessions": worker.sbd_sessions,
        "loop_lag_s": worker.loop_lag_ms / 1000,
        "commit_p50_s": _seconds(worker.commit_p50_ms),
        "commit_p99_s": _seconds(worker.commit_p99_ms),
        "memory_bytes": worker.memory_bytes or None,
        "uptime_s": worker.uptime_s or None,
        "heartbeat": worker.heartbeat,
        "pid": worker.pid,
        "boot_id": worker.boot_id,
    }
    actions = []
    if drainable and worker.state != "draining":
        actions.append(Action("Drain", reverse("console:worker_drain", args=[worker.boot_id])))
    return Row(values, actions=actions)


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000

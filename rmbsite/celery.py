"""The Celery application: background work beside the relay.

    celery -A rmbsite worker -Q federation -c 8        deliveries to other relays
    celery -A rmbsite worker -Q chain,default -c 4     the chain's follower, watches
    celery -A rmbsite beat                             starts what has to run and does not

`runrelay` keeps such workers as its children unless told otherwise (`relay.server.celery_main`).
Three queues, so that none starves another. Tasks are plain functions of `relay`; here is only how
they run: in threads, since each of them waits for others most of its life, acknowledged when done,
without a store of results. A task may run twice or be lost with its worker: each takes a lease,
and the schedule starts again what must run.
"""

from __future__ import annotations

import os
import warnings
from typing import Any, Final

import django
from celery import Celery, signals
from celery.beat import ScheduleEntry, Scheduler
from celery.exceptions import CPendingDeprecationWarning
from django.apps import apps
from django.db import close_old_connections

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "rmbsite.settings")

from django.conf import settings

from relay.ops import background, run_here, task_record
from rmbsite import broker, telemetry

WATCH_S: Final = 5.0
"""How soon work that nobody does any more is begun again."""

DAILY_WATCH_S: Final = 60.0
"""How late what is done once a day may begin."""

ROLES_WATCH_S: Final = 60.0
"""How late a role of the provider may end, which holds for an hour at least."""

TASK_PACKAGES: Final = (
    *("relay.federation", "relay.twins", "relay.alarms", "relay.analytics"),
    *(["relay.access"] if settings.RMB.oidc.issuer else []),
    *(["relay.lattice"] if settings.RMB.lattice.enabled else []),
)


class Schedule(Scheduler):  # type: ignore[misc]
    """A schedule that starts tasks as the relay does: bounded, one line when it cannot.

    There is only "every n seconds" in it, so there is nothing to remember over a restart.
    """

    def apply_async(
        self, entry: ScheduleEntry, producer: Any = None, advance: bool = True, **_: Any
    ) -> None:
        if advance:
            entry = self.reserve(entry)
        background.start(entry.task, *(entry.args or ()), expires_s=WATCH_S)


# No fix-ups: Celery's own for Django puts the current folder in front of the module path.
app = Celery("rmbsite", fixups=[])
app.conf.update(
    **broker.settings_of(settings.RMB.redis.url),
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
    task_queues={name: {} for name in background.QUEUES},
    # Watches: they must run when every thread of the other queues is taken.
    task_default_queue=background.DEFAULT,
    task_create_missing_queues=False,
    task_routes={
        "federation.deliver": {"queue": background.FEDERATION},
        "chain.follow": {"queue": background.CHAIN},
        "chain.import_twins": {"queue": background.CHAIN},
    },
    task_acks_late=True,
    task_ignore_result=True,
    worker_pool="threads",
    worker_prefetch_multiplier=1,
    worker_hijack_root_logger=False,
    # A task that goes on after the connection was lost holds its lease: let it end by itself.
    worker_cancel_long_running_tasks_on_connection_loss=False,
    beat_scheduler=Schedule,
    beat_schedule={},
    timezone="UTC",
)


def _watch(task: str, every_s: float = WATCH_S) -> None:
    app.conf.beat_schedule[task] = {"task": task, "schedule": every_s}


_watch("federation.watch")
_watch("alarms.evaluate")
if settings.RMB.analytics.daily_at:
    _watch("analytics.daily", DAILY_WATCH_S)
if settings.RMB.oidc.issuer and settings.RMB.oidc.role_hours:
    _watch("access.end_roles", ROLES_WATCH_S)
if settings.RMB.lattice.enabled:
    _watch("lattice.follow")
if settings.RMB.twins.source == "tfchain":
    _watch("chain.watch")


def _set_up_django(**_: Any) -> None:
    """Models exist before the modules with the tasks are imported."""
    if not apps.ready:
        django.setup()


def _leave_logging(**_: Any) -> None:
    """Django's settings have set it up; somebody has to listen, or Celery does it again."""


def _mind_connections(**_: Any) -> None:
    """What Django does around a request: a connection the database closed is not used again."""
    close_old_connections()


def _note_beginning(task_id: str, task: Any, args: Any, **_: Any) -> None:
    task_record.began(task_id, task.name, args or ())


def _note_end(task_id: str, **_: Any) -> None:
    task_record.ended(task_id)


def _note_failure(
    task_id: str, exception: BaseException, args: Any, sender: Any = None, **_: Any
) -> None:
    task_record.failed(task_id, sender.name, args or (), exception)


def _begin(**_: Any) -> None:
    """Say that somebody takes tasks, and look at once whether there is something to start."""
    telemetry.set_up(settings.RMB.otel, "tasks")
    # At every loss of the broker it tells that a setting we state will get another default. Here,
    # because setting up its logging turns the warning on.
    warnings.filterwarnings("ignore", category=CPendingDeprecationWarning)
    if background.begin_heartbeat(list(app.amqp.queues.consume_from)):
        for entry in app.conf.beat_schedule.values():
            background.start(entry["task"], *entry.get("args", ()), expires_s=WATCH_S)


def _run_here(**_: Any) -> None:
    """Tasks that Redis is too full to take are run by whoever starts them."""
    run_here.allow(lambda name: app.tasks[name])


def _stop_tasks(**_: Any) -> None:
    """The worker ends when its tasks do: the long ones look at this."""
    background.stopping.set()


signals.import_modules.connect(_set_up_django, weak=False)
# After the line above: whoever connected first is called first.
app.autodiscover_tasks(TASK_PACKAGES)
signals.setup_logging.connect(_leave_logging, weak=False)
signals.task_prerun.connect(_mind_connections, weak=False)
signals.task_postrun.connect(_mind_connections, weak=False)
signals.task_prerun.connect(_note_beginning, weak=False)
signals.task_postrun.connect(_note_end, weak=False)
signals.task_failure.connect(_note_failure, weak=False)
signals.worker_ready.connect(_begin, weak=False)
signals.worker_init.connect(_run_here, weak=False)
signals.beat_init.connect(_run_here, weak=False)
signals.worker_shutting_down.connect(_stop_tasks, weak=False)
signals.worker_shutdown.connect(lambda **_: run_here.join(), weak=False)

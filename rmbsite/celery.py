"""The Celery application: background work beside the relay.

    celery -A rmbsite worker -Q federation -c 8        deliveries to partner relays
    celery -A rmbsite worker -Q chain,default -c 4     the chain's follower, watches
    celery -A rmbsite beat                             starts tasks that should run but do not

`runrelay` runs such workers as its children unless configured otherwise
(`relay.server.celery_main`). There are three queues, so that none starves another. Tasks are plain
functions of `relay`; this module only defines how they run: in threads, as each of them mostly
waits for I/O, acknowledged when done, and without a result store. A task may run twice or be lost
with its worker: each takes a lease, and the schedule restarts the tasks that must run.
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
"""Seconds within which abandoned work is started again."""

DAILY_WATCH_S: Final = 60.0
"""Maximum delay of daily work."""

ROLES_WATCH_S: Final = 60.0
"""Maximum delay until a role from the provider is revoked; such a role is valid for at least an
hour."""

TASK_PACKAGES: Final = (
    *("relay.federation", "relay.twins", "relay.alarms", "relay.analytics"),
    *(["relay.access"] if settings.RMB.oidc.issuer else []),
    *(["relay.lattice"] if settings.RMB.lattice.enabled else []),
)


class Schedule(Scheduler):  # type: ignore[misc]
    """A schedule that starts tasks as the relay does: bounded in time, with one log line on
    failure.

    All entries are of the form "every n seconds", so no state needs to survive a restart.
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
    # For watches, which must run even if every thread of the other queues is busy.
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
    # A task that continues after the connection was lost holds its lease: let it end by itself.
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
    """Set up Django before the modules with the tasks are imported, as they need the models."""
    if not apps.ready:
        django.setup()


def _leave_logging(**_: Any) -> None:
    """Do nothing: Django's settings set logging up, but without a receiver Celery would do it
    again.
    """


def _mind_connections(**_: Any) -> None:
    """Discard connections that the database has closed, as Django does around a request."""
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
    """Report that this worker accepts tasks, and check at once whether there are tasks to start."""
    telemetry.set_up(settings.RMB.otel, "tasks")
    # At every loss of the broker, Celery warns that the default of a setting, which is set here,
    # will change. The filter is set here because Celery's logging set-up enables the warning.
    warnings.filterwarnings("ignore", category=CPendingDeprecationWarning)
    if background.begin_heartbeat(list(app.amqp.queues.consume_from)):
        for entry in app.conf.beat_schedule.values():
            background.start(entry["task"], *entry.get("args", ()), expires_s=WATCH_S)


def _run_here(**_: Any) -> None:
    """Let the caller run a task itself if Redis is too full to accept it."""
    run_here.allow(lambda name: app.tasks[name])


def _stop_tasks(**_: Any) -> None:
    """Ask long tasks to stop, as the worker ends only when its tasks do."""
    background.stopping.set()


signals.import_modules.connect(_set_up_django, weak=False)
# After the line above, as receivers are called in the order in which they were connected.
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

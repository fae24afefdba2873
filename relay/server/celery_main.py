"""One Celery worker as a child process of the relay.

The supervisor starts it like the other children. It does the same as `celery -A rmbsite worker`,
and with `--beat` also runs the schedule, in a separate thread. On SIGTERM it asks the tasks to
finish and waits for them.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import logging
import os
import signal
import sys
import threading
import warnings
from collections.abc import Sequence
from typing import Any, Final

from relay.server.django_setup import set_up_django
from relay.server.lifeline import tell_ready, watch_parent

APPLICATION: Final = "rmbsite.celery"
"""The Celery application, named by a string: the relay does not import the site."""

ORPHAN_GRACE_S: Final = 15.0
"""Seconds that a worker without a parent has to finish its tasks before it is killed."""

GC_THRESHOLD: Final = 20_000
"""Objects created between two garbage collections: with Python's default of 700, a tenth of the
start is spent scanning imported modules."""

ROOM_POLL_S: Final = 2.0

logger = logging.getLogger("relay.celery")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one Celery worker until SIGTERM or until the parent process is gone."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--queues", required=True, help="separated by commas")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--holder", default="", help="name of this child and its predecessors")
    parser.add_argument("--beat", action="store_true", help="run the schedule as well")
    parser.add_argument("--lifeline-fd", type=int, required=True)
    parser.add_argument("--ready-fd", type=int, required=True)
    options = parser.parse_args(arguments)
    watch_parent(options.lifeline_fd, grace_s=ORPHAN_GRACE_S)
    gc.set_threshold(GC_THRESHOLD)
    # Imported here so that the lifeline is watched from the first moment.
    from celery import signals
    from celery.platforms import SecurityWarning

    # Celery warns when run as root because pickled tasks would run as root; ours are JSON only.
    warnings.filterwarnings("ignore", category=SecurityWarning)
    set_up_django()
    _free_leases(options.holder)
    app = importlib.import_module(APPLICATION).app
    ready_fd = options.ready_fd

    def ready(**_: Any) -> None:
        nonlocal ready_fd
        if ready_fd >= 0:  # once, not after every reconnect
            tell_ready(ready_fd)
            ready_fd = -1

    signals.worker_ready.connect(ready, weak=False)
    # Not needed: the supervisor watches this worker, and there are no others to talk to.
    app.conf.worker_enable_remote_control = False
    worker = app.Worker(
        hostname=f"{options.queues.replace(',', '-')}@%h",
        queues=options.queues,
        concurrency=options.threads,
        quiet=True,
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
    )
    if options.beat:
        threading.Thread(target=_run_schedule, args=(app,), name="schedule", daemon=True).start()
    if _wait_for_room():
        worker.start()
    gc.freeze()  # skips the last collection, which would only take time
    return int(worker.exitcode or 0)


def _wait_for_room() -> bool:
    """Wait until Redis accepts what a Celery worker writes at its start, or until SIGTERM.

    Without memory in Redis, Celery's worker would exit, and with it the schedule, whose jobs free
    memory in Redis (`ops.run_here`).

    Returns:
        Whether the worker is to be started.
    """
    from redis.exceptions import OutOfMemoryError, RedisError

    from relay.ops import background, run_here
    from relay.ops.redis_client import client
    from relay.queues import keys

    signal.signal(signal.SIGTERM, lambda *_: background.stopping.set())
    waits = False
    while not background.stopping.is_set():
        try:
            client().setrange(keys.UNUSED, 0, "")  # nothing is written
        except OutOfMemoryError as error:
            if not waits:
                logger.warning("no worker for tasks yet: %s", error)
            waits = True
        except RedisError:
            return True  # Celery itself retries
        else:
            return True
        background.stopping.wait(ROOM_POLL_S)
    run_here.join()
    return False


def _free_leases(holder: str) -> None:
    """Release the leases of this child's predecessor, which has ended."""
    from redis.exceptions import RedisError

    from relay.ops import lease
    from relay.ops.redis_client import client
    from relay.queues import keys

    lease.be(holder)
    try:
        freed = lease.free_former(client(), keys.leases())
    except RedisError as error:
        logger.debug("leases of a former child not freed: %s", error)  # they expire
    else:
        if freed:
            logger.info("the child before this one held %d leases", freed)


def _run_schedule(app: Any) -> None:
    from celery import beat

    try:
        schedule = beat.Service(app, scheduler_cls=app.conf.beat_scheduler)
        schedule.start(embedded_process=True)
    except Exception:
        # Otherwise scheduled work would stop unnoticed, and nothing would restart it.
        logger.exception("the schedule ended; so does this worker, to be started again")
        os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())

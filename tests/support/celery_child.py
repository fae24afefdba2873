"""The relay's Celery child with additional tasks for tests.

`note` records a mark, `linger` works until it is asked to stop, `fail` raises an error with the
given message; the schedule `beats` starts `note` every half second.
"""

from __future__ import annotations

import os
import sys

import django

from relay.ops import background
from relay.ops.redis_client import client
from relay.server import celery_main

MARKS = "test:marks"


def main() -> int:
    """Run a worker; the arguments are those of `relay.server.celery_main`."""
    django.setup()
    from rmbsite.celery import app

    @app.task(name="test.note")
    def note(mark: str) -> None:
        client().rpush(MARKS, mark)

    @app.task(name="test.linger")
    def linger(limit_s: float) -> None:
        client().rpush(MARKS, f"lingering {os.getpid()}")
        background.stopping.wait(limit_s)
        client().rpush(MARKS, "ended")

    @app.task(name="test.fail")
    def fail(message: str) -> None:
        raise ConnectionError(message)

    app.conf.beat_schedule = {
        "beats": {"task": "test.note", "schedule": 0.5, "args": ("beat",)},
    }
    return celery_main.main()


if __name__ == "__main__":
    sys.exit(main())

"""Log lines of every process: one format on standard error.

Access logs of the web servers stay off: they print the query string, which is the session token.
"""

from __future__ import annotations

import logging
from typing import Any

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"

# Loggers that print request lines or, on debug, whole frames and commands.
QUIET = (
    *("uvicorn.access", "uvicorn.error", "daphne", "django.channels.server", "websockets"),
    # Two lines for every task, and tasks are started every few seconds.
    *("celery", "kombu"),
)


# Tells where it was when the broker went away in the middle of a task.
BRIEF = ("celery.worker.request",)


class Brief(logging.Filter):
    """Lets a record through without its traceback: the line says all there is to say."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.exc_info = record.exc_text = None
        return True


def settings_of(level: str) -> dict[str, Any]:
    """Django's ``LOGGING`` for one level name of the configuration."""
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "filters": {"brief": {"()": Brief}},
        "formatters": {"line": {"format": FORMAT}},
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
        "root": {"handlers": ["stderr"], "level": level.upper()},
        "loggers": {
            **{name: {"level": "WARNING"} for name in QUIET},
            **{name: {"filters": ["brief"]} for name in BRIEF},
            "django.server": {"level": "WARNING", "handlers": [], "propagate": True},
        },
    }

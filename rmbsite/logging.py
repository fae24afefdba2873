"""Log lines of every process: one format on standard error.

Access logs of the web servers stay off: they print the query string, which is the session token.
"""

from __future__ import annotations

from typing import Any

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"

# Loggers that print request lines or, on debug, whole frames and commands.
QUIET = (
    *("uvicorn.access", "uvicorn.error", "daphne", "django.channels.server", "websockets"),
    # Two lines for every task, and tasks are started every few seconds.
    *("celery", "kombu"),
)


def settings_of(level: str) -> dict[str, Any]:
    """Django's ``LOGGING`` for one level name of the configuration."""
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"line": {"format": FORMAT}},
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
        "root": {"handlers": ["stderr"], "level": level.upper()},
        "loggers": {
            **{name: {"level": "WARNING"} for name in QUIET},
            "django.server": {"level": "WARNING", "handlers": [], "propagate": True},
        },
    }

"""Log lines of every process: one format on standard error.

Text for people, or one JSON object a line for machines (`log.format`). What was given with a record
(`extra={...}`), such as the connection it is about, is a key of the object; the text form leaves it
out, as its message says what matters.

Access logs of the web servers stay off: they print the query string, which is the session token.
"""

from __future__ import annotations

import json
import logging
import re
import time
from typing import Any

from relay.ops.printable import shown

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
MOMENT = "%Y-%m-%dT%H:%M:%S"

# What every record has; other attributes were given with it.
STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

# Loggers that print request lines or, on debug, whole frames and commands.
QUIET = (
    *(
        "uvicorn.access",
        "uvicorn.error",
        "daphne",
        "django.channels.server",
        "websockets",
        "picows",
    ),
    # Two lines for every task, and tasks are started every few seconds.
    *("celery", "kombu"),
)


# Tells where it was when the broker went away in the middle of a task.
BRIEF = ("celery.worker.request",)

# Requests with a foreign host name, or that are too large: anybody can send them.
REFUSED = tuple(
    f"django.security.{name}"
    for name in (
        *("DisallowedHost", "RequestDataTooBig", "TooManyFieldsSent", "TooManyFilesSent"),
        *("BadRequest", "MultiPartParserError", "SuspiciousFileOperation", "SuspiciousOperation"),
    )
)
UNKNOWN_HOST = re.compile(r"Invalid HTTP_HOST header: '(.*?)'\.", re.DOTALL)
MAX_HOST_CHARS = 100


class Brief(logging.Filter):
    """Lets a record through without its traceback: the line says all there is to say."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.exc_info = record.exc_text = None
        return True


class Refused(logging.Filter):
    """Tells of a request that Django refused in one line, without advice that is not for here."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.exc_info = record.exc_text = None
        host = UNKNOWN_HOST.match(record.getMessage())
        if host:
            record.msg = "request for unknown host name %s refused; admin.hosts has the known ones"
            record.args = (host[1][:MAX_HOST_CHARS],)
        elif "settings." in record.getMessage():
            record.msg, record.args = "form refused: larger than the site takes", ()
        return True


# Celery tells of each try to reach a broker that is away.
RETRYING = ("celery.worker.consumer.consumer", "celery.beat")
RETRY = re.compile(r"Trying again in (\d+)")
FIRST_RETRY_S = 2


class FirstTry(logging.Filter):
    """Lets the first line of many alike through: what is retried until it works is told once."""

    def filter(self, record: logging.LogRecord) -> bool:
        found = RETRY.search(record.getMessage())
        return found is None or int(found[1]) <= FIRST_RETRY_S


class TextLine(logging.Formatter):
    """A record as one line of text, and its traceback below.

    Others choose part of what is logged, such as errors of other relays: what is not printable is
    escaped, so that nobody can forge a line, or write to a terminal. Libraries end some messages
    with a line break.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = shown(record.message.strip())
        return super().formatMessage(record)


class JsonLine(logging.Formatter):
    """A record as one line of JSON."""

    @staticmethod
    def converter(moment: float | None) -> time.struct_time:
        return time.gmtime(moment)

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": f"{self.formatTime(record, MOMENT)}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "pid": record.process,
            "message": record.getMessage(),
        }
        given = {name: value for name, value in vars(record).items() if name not in STANDARD}
        line |= {name: value for name, value in given.items() if name not in line}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def settings_of(level: str, line_format: str = "text") -> dict[str, Any]:
    """Django's ``LOGGING``, of which JSON can be made.

    Args:
        level: `log.level` of the configuration.
        line_format: `log.format` of it.
    """
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "filters": {
            "brief": {"()": f"{__name__}.Brief"},
            "refused": {"()": f"{__name__}.Refused"},
            "first_try": {"()": f"{__name__}.FirstTry"},
        },
        "formatters": {
            "text": {"()": f"{__name__}.TextLine", "fmt": FORMAT},
            "json": {"()": f"{__name__}.JsonLine"},
        },
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": line_format}},
        "root": {"handlers": ["stderr"], "level": level.upper()},
        "loggers": {
            **{name: {"level": "WARNING"} for name in QUIET},
            **{name: {"filters": ["brief"]} for name in BRIEF},
            **{name: {"filters": ["refused"]} for name in REFUSED},
            **{name: {"filters": ["first_try"]} for name in RETRYING},
            "django.server": {"level": "WARNING", "handlers": [], "propagate": True},
        },
    }

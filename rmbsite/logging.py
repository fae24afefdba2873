"""Log lines of every process: one format on standard error.

The format is text for people, or one JSON object per line for machines (`log.format`). Extra fields
of a record (`extra={...}`), such as the connection it is about, become keys of the object. The text
form omits them, as the message has what matters.

Access logs of the web servers stay off, as they print the query string, which is the session token.
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

# Attributes of every record; all others were passed as extra fields.
STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

# Loggers that print request lines or, at debug level, whole frames and commands.
QUIET = (
    *(
        "uvicorn.access",
        "uvicorn.error",
        "daphne",
        "django.channels.server",
        "websockets",
        "picows",
    ),
    # They log two lines for every task, and tasks are started every few seconds.
    *("celery", "kombu"),
)


# Loggers whose traceback only shows where a task was when the broker became unavailable.
BRIEF = ("celery.worker.request",)

# Requests with an unknown host name, or that are too large: anyone can send them.
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
    """Filter that removes the traceback of a record, as the message is sufficient."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.exc_info = record.exc_text = None
        return True


class Refused(logging.Filter):
    """Filter that logs a request refused by Django in one line, without Django's inapplicable
    advice.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        record.exc_info = record.exc_text = None
        host = UNKNOWN_HOST.match(record.getMessage())
        if host:
            record.msg = "request for unknown host name %s refused; admin.hosts has the known ones"
            record.args = (host[1][:MAX_HOST_CHARS],)
        elif "settings." in record.getMessage():
            record.msg, record.args = "form refused: larger than the site takes", ()
        return True


# Celery logs each attempt to reach an unavailable broker.
RETRYING = ("celery.worker.consumer.consumer", "celery.beat")
RETRY = re.compile(r"Trying again in (\d+)")
FIRST_RETRY_S = 2


class FirstTry(logging.Filter):
    """Filter that passes only the first of many similar lines about something retried until it
    works.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        found = RETRY.search(record.getMessage())
        return found is None or int(found[1]) <= FIRST_RETRY_S


class TextLine(logging.Formatter):
    """Formatter that writes a record as one line of text, with its traceback below.

    Remote parties choose part of what is logged, such as errors of partner relays. Characters that
    are not printable are escaped, so that nobody can forge a log line or send control codes to a
    terminal. The line break with which some libraries end their messages is removed.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = shown(record.message.strip())
        return super().formatMessage(record)


class JsonLine(logging.Formatter):
    """Formatter that writes a record as one line of JSON."""

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
    """Return Django's ``LOGGING``, in a form that can be converted to JSON.

    Args:
        level: `log.level` of the configuration.
        line_format: `log.format` of the configuration.
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

"""Log lines of the gateway: text for people, or one JSON object per line for machines.

A record's own fields, given with `extra={...}`, become keys of the object. The text form omits
them, as its message contains what matters. No log line contains a secret, a token or a payload:
libraries that print what goes over the wire are kept at warnings, whatever the level.
"""

from __future__ import annotations

import json
import logging
import time
from contextvars import ContextVar
from typing import Any, Final

GATEWAY: Final[ContextVar[str | None]] = ContextVar("gateway", default=None)
"""Name of the gateway that the current task works for, if a process runs many."""

FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"

# At debug level these libraries log frames, tokens or commands.
_QUIET: Final = ("picows", "websockets", "websocket", "asyncio", "redis")

_SECOND: Final = "%Y-%m-%dT%H:%M:%S"
_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class TextFormatter(logging.Formatter):
    """Formats a record as one line of text, followed by its traceback.

    Others choose part of what is logged, such as uids. Non-printable characters are escaped, so
    that they cannot forge a line or control a terminal.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:
        gateway = getattr(record, "gateway", None)
        if gateway is not None:
            record.message = f"[{gateway}] {record.message}"
        if not record.message.isprintable():
            record.message = "".join(map(_printable, record.message))
        return super().formatMessage(record)


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": f"{self.formatTime(record, _SECOND)}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        for name, value in vars(record).items():
            if name not in _STANDARD:
                line[name] = value
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def _name_gateway(record: logging.LogRecord) -> bool:
    """Add the name of the gateway that a record is about, if a process runs many."""
    name = GATEWAY.get()
    if name is not None:
        record.gateway = name
    return True


def _printable(character: str) -> str:
    if character.isprintable():
        return character
    return character.encode("unicode_escape").decode("ascii")


def set_up(debug: int, log_format: str, level: int = logging.INFO) -> None:
    """Write log lines to standard error from now on.

    Args:
        debug: 0 for `level` and above, 1 for debug lines as well, 2 also for those of libraries.
        log_format: `text` or `json`.
        level: lowest level that is written.
    """
    handler = logging.StreamHandler()
    if log_format == "json":
        formatter: logging.Formatter = JsonFormatter()
        formatter.converter = time.gmtime
    else:
        formatter = TextFormatter(FORMAT)
    handler.setFormatter(formatter)
    handler.addFilter(_name_gateway)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.DEBUG if debug else level)
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING if debug < 2 else logging.INFO)
    logging.captureWarnings(True)

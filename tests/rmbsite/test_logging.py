"""Tests of `rmbsite.logging`: log lines for people and for programs."""

from __future__ import annotations

import json
import logging
import logging.config
from io import StringIO

import pytest

from rmbsite import logging as site_logging


def formatter_of(line_format: str) -> logging.Formatter:
    settings = site_logging.settings_of("info", line_format)
    found = logging.config.DictConfigurator(settings).configure_formatter(
        settings["formatters"][line_format]
    )
    assert isinstance(found, logging.Formatter)
    return found


def written(line_format: str, **given: object) -> str:
    stream = StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter_of(line_format))
    log = logging.Logger("relay.test")
    log.addHandler(handler)
    try:
        raise ValueError("no such thing")
    except ValueError:
        log.error("session %s\nended", "7:x", extra=given, exc_info=bool(given.pop("traceback", 0)))
    return stream.getvalue()


def test_json() -> None:
    text = written("json", connection="7:x@12", pid="mine")
    assert text.count("\n") == 1
    line = json.loads(text)
    assert line["message"] == "session 7:x\nended" and line["connection"] == "7:x@12"
    assert line["level"] == "error" and line["logger"] == "relay.test"
    assert isinstance(line["pid"], int), "what a record is stays, whatever was given with it"
    assert line["time"].endswith("Z") and "traceback" not in line


def test_json_with_a_traceback() -> None:
    line = json.loads(written("json", traceback=True, connection=object()))
    assert "ValueError: no such thing" in line["traceback"] and "object" in line["connection"]


def test_text_leaves_out_what_its_message_says() -> None:
    assert written("text", connection="7:x@12").endswith("relay.test: session 7:x\\nended\n")


def test_nobody_forges_a_line_of_text_or_steers_a_terminal() -> None:
    told = "\x1b[2J\nINFO all is well \u202e é"
    record = logging.makeLogRecord({"name": "relay.test", "msg": "refused: %s\n", "args": (told,)})
    line = formatter_of("text").format(record)
    assert line.endswith(r"relay.test: refused: \x1b[2J\nINFO all is well \u202e é")


@pytest.mark.parametrize("line_format", ["text", "json"])
def test_settings_can_be_applied(line_format: str) -> None:
    settings = site_logging.settings_of("warning", line_format)
    assert settings["handlers"]["stderr"]["formatter"] in settings["formatters"]


def test_celery_tells_once_that_its_broker_is_away() -> None:
    settings = site_logging.settings_of("info")
    stream = StringIO()
    settings["handlers"]["stderr"]["stream"] = stream
    consumer, beat = site_logging.RETRYING
    before = {name: logging.getLogger(name).filters[:] for name in (consumer, beat)}
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        logging.config.dictConfig(settings)
        for retry in range(1, 5):
            again = f"Trying again in {2.0 * retry:.2f} seconds... ({retry}/None)"
            error = ConnectionError("refused")
            logging.getLogger(consumer).error(
                "consumer: Cannot connect to %s: %s.\n%s", "redis://", error, again
            )
            logging.getLogger(beat).error(
                "beat: Connection error: %s. Trying again in %s seconds...", error, 2.0 * retry
            )
        logging.getLogger(beat).error("something else")
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        for name, filters in before.items():
            logging.getLogger(name).filters[:] = filters
    lines = stream.getvalue().splitlines()
    assert [line.split(": ")[1] for line in lines] == ["consumer", "beat", "something else"]

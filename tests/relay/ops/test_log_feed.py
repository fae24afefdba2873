"""The lines of its log that a worker publishes."""

from __future__ import annotations

import json
import logging

from relay.ops.log_feed import MAX_CHARS, MAX_LINES, LogFeed


def _logger(feed: LogFeed) -> logging.Logger:
    logger = logging.Logger("test")
    logger.addHandler(feed)
    return logger


def test_lines_are_taken_once() -> None:
    feed = LogFeed()
    _logger(feed).warning("%d is over its limit", 7)
    taken = json.loads(feed.take())
    assert taken["skipped"] == 0
    assert [(each["level"], each["text"]) for each in taken["lines"]] == [
        ("WARNING", "7 is over its limit")
    ]
    assert feed.take() == b""


def test_of_too_many_lines_the_newest_are_published() -> None:
    feed = LogFeed()
    logger = _logger(feed)
    for number in range(MAX_LINES + 5):
        logger.info("%d", number)
    logger.debug("nobody is told")
    taken = json.loads(feed.take())
    assert taken["skipped"] == 5
    assert [each["text"] for each in taken["lines"]] == [str(n) for n in range(5, MAX_LINES + 5)]


def test_any_record_is_a_line() -> None:
    feed = LogFeed()
    logger = _logger(feed)
    logger.error("%d", "no number")
    logger.error("x" * (MAX_CHARS + 1))
    texts = [each["text"] for each in json.loads(feed.take())["lines"]]
    assert texts == ["%d", "x" * MAX_CHARS]

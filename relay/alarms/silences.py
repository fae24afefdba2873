"""Matching of alarms with silences. Pure.

In patterns, `*` stands for any text and `?` for any character. All other characters stand for
themselves, because subjects may contain any character.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Protocol, TypeVar


class Silenced(Protocol):
    """The fields of a silence that matching needs."""

    rule: str
    subject: str
    until: datetime


Found = TypeVar("Found", bound=Silenced)


def matching(silences: Iterable[Found], rule: str, subject: str) -> Found | None:
    """Return the silence that lasts longest of those that match an alarm."""
    found = [each for each in silences if fits(each.rule, rule) and fits(each.subject, subject)]
    return max(found, key=lambda each: each.until, default=None)


def fits(pattern: str, text: str) -> bool:
    """Check whether a text matches a pattern, in time up to the product of their lengths."""
    at, star, resume = 0, -1, 0
    for_text = 0
    while for_text < len(text):
        if at < len(pattern) and pattern[at] == "*":
            star, resume = at, for_text
            at += 1
        elif at < len(pattern) and pattern[at] in ("?", text[for_text]):
            at += 1
            for_text += 1
        elif star >= 0:  # the last star takes one character more
            resume += 1
            at, for_text = star + 1, resume
        else:
            return False
    return pattern[at:].strip("*") == ""

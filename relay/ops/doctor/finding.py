"""What a check says: how bad it is, about what, and what to do."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass


class Level(enum.StrEnum):
    """How bad it is. A `FAULT` stops the relay or loses messages; a `WARNING` will, some day."""

    OK = "ok"
    WARNING = "warning"
    FAULT = "fault"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the doctor.

    Attributes:
        check: which check it is of, such as `redis.policy`: stable, for scripts.
        text: what was found, with its figures.
        remedy: what to do; empty when nothing has to be done.
    """

    level: Level
    check: str
    text: str
    remedy: str = ""


Check = Callable[[], Iterable[Finding]]


def ok(check: str, text: str) -> Finding:
    """Nothing has to be done."""
    return Finding(Level.OK, check, text)


def warning(check: str, text: str, remedy: str) -> Finding:
    """Works today."""
    return Finding(Level.WARNING, check, text, remedy)


def fault(check: str, text: str, remedy: str) -> Finding:
    """Does not work, or loses messages."""
    return Finding(Level.FAULT, check, text, remedy)

"""Findings of checks: how serious each is, what it is about, and what to do."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass


class Level(enum.StrEnum):
    """Severity. A `FAULT` stops the relay or loses messages; a `WARNING` may do so later."""

    OK = "ok"
    WARNING = "warning"
    FAULT = "fault"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the doctor.

    Attributes:
        check: Name of the check, such as `redis.policy`: stable, for scripts.
        text: What was found, with figures.
        remedy: What to do; empty if nothing has to be done.
    """

    level: Level
    check: str
    text: str
    remedy: str = ""


Check = Callable[[], Iterable[Finding]]


def ok(check: str, text: str) -> Finding:
    """Return a finding that needs no action."""
    return Finding(Level.OK, check, text)


def warning(check: str, text: str, remedy: str) -> Finding:
    """Return a finding about something that still works today."""
    return Finding(Level.WARNING, check, text, remedy)


def fault(check: str, text: str, remedy: str) -> Finding:
    """Return a finding about something that does not work, or loses messages."""
    return Finding(Level.FAULT, check, text, remedy)

"""Checks whether a database can store what clients put into addresses, cursors and bodies."""

from __future__ import annotations

from datetime import date
from typing import Final

MAX_ID: Final = 2**63 - 1
"""Largest integer that a column can hold."""

FIRST_YEAR: Final = 1970
LAST_YEAR: Final = 9998
"""Range of years: databases have no year 0, and a time near the ends cannot be converted to UTC."""


def is_text(value: str) -> bool:
    """Check whether a text can be stored.

    PostgreSQL cannot store NUL, and half of a surrogate pair, which JSON can contain, cannot be
    encoded.
    """
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in value


def is_within_reach(at: date) -> bool:
    """Check whether a time or day can be stored and compared, whatever its offset."""
    return FIRST_YEAR <= at.year <= LAST_YEAR

"""What a database can hold of what strangers write into addresses, cursors and bodies."""

from __future__ import annotations

from datetime import date
from typing import Final

MAX_ID: Final = 2**63 - 1
"""Largest whole number that a column holds."""

FIRST_YEAR: Final = 1970
LAST_YEAR: Final = 9998
"""Databases know no year 0, and a time near the ends cannot be moved to UTC."""


def is_text(value: str) -> bool:
    """Whether a text can be stored: PostgreSQL takes no NUL, and half of a surrogate pair, which
    JSON can name, has no encoding."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in value


def is_within_reach(at: date) -> bool:
    """Whether a time or a day is one that can be stored and compared, whatever its offset."""
    return FIRST_YEAR <= at.year <= LAST_YEAR

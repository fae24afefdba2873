"""Argument types shared by several commands: invalid values end in a one-line error."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

MAX_DIGITS: Final = 18
"""Longer numbers are never meant."""


def whole_number(least: int, most: int) -> Callable[[str], int]:
    """Return an argument type for whole numbers from `least` to `most`, both included."""

    def read(text: str) -> int:
        whole = text.isascii() and text.isdecimal() and len(text) <= MAX_DIGITS
        if not whole or not least <= int(text) <= most:
            raise ArgumentTypeError(f"must be a whole number from {least} to {most:,}")
        return int(text)

    return read


def moment(text: str) -> datetime:
    """Read a time, in UTC unless it has an offset, and return it in UTC.

    Raises:
        ValueError: The text is not a time.
    """
    found = datetime.fromisoformat(text)
    try:
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
    except OverflowError as error:
        raise ValueError(str(error)) from None

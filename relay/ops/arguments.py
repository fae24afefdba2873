"""Readers of arguments that several commands have: what is none ends in one line."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

MAX_DIGITS: Final = 18
"""More are no number anybody means."""


def whole_number(least: int, most: int) -> Callable[[str], int]:
    """A reader of numbers between two, which are included."""

    def read(text: str) -> int:
        whole = text.isascii() and text.isdecimal() and len(text) <= MAX_DIGITS
        if not whole or not least <= int(text) <= most:
            raise ArgumentTypeError(f"must be a whole number from {least} to {most:,}")
        return int(text)

    return read


def moment(text: str) -> datetime:
    """A time, of UTC unless it says otherwise; in UTC.

    Raises:
        ValueError: it is none.
    """
    found = datetime.fromisoformat(text)
    try:
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
    except OverflowError as error:
        raise ValueError(str(error)) from None

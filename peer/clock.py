"""Comparison of this machine's clock with a relay's, using the `Date` header of the relay's answer.

A relay refuses tokens that have expired by its clock, and peers drop messages that have expired by
theirs: with a wrong clock nothing works, and no error gives the reason.
"""

from __future__ import annotations

from email.utils import parsedate_to_datetime
from typing import Final

WRONG_S: Final = 30
"""Difference above which the clock is reported as wrong, in seconds.

Tokens live for a minute, and short messages for 20 s. The header has a resolution of one second,
and the relay's answer takes some time to arrive."""


def complaint(date: str | None, now_s: float) -> str:
    """Return how far this machine's clock differs from a relay's; an empty string if they agree.

    Args:
        date: the relay's `Date` header; None if it sent none.
        now_s: Unix time on this machine.
    """
    try:
        relay_s = parsedate_to_datetime(date or "").timestamp()
    except (ValueError, OverflowError):
        return ""
    off_s = round(now_s - relay_s)
    if abs(off_s) <= WRONG_S:
        return ""
    side = "ahead of" if off_s > 0 else "behind"
    return f"this machine's clock is {abs(off_s)} s {side} the relay's"

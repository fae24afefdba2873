"""Whether this machine's clock agrees with a relay's, as the `Date` header of its answer says.

A relay refuses tokens that have expired by its clock, and peers drop messages that have: with a
wrong clock nothing works, and nothing says why.
"""

from __future__ import annotations

from email.utils import parsedate_to_datetime
from typing import Final

WRONG_S: Final = 30
"""A difference that matters: tokens live for a minute, and short messages for 20 s. The header has
whole seconds, and its answer takes some."""


def complaint(date: str | None, now_s: float) -> str:
    """Say how far the clock of this machine is from a relay's; empty where they agree.

    Args:
        date: the relay's header; None: it sent none.
        now_s: unix time here.
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

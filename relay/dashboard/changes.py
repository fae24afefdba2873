"""Comparison of a number with an earlier one, in words: `12 % more`, with an arrow and a colour."""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from relay.dashboard.figures import Kind, write
from relay.dashboard.states import Tone


class Better(Enum):
    """Direction in which a number improves."""

    UP = "up"
    DOWN = "down"
    NEITHER = "neither"


class Since(NamedTuple):
    """Time of an earlier number, in words."""

    text: str
    short: str


HOUR_AGO: Final = Since("an hour ago", "1 h")
WEEK_AGO: Final = Since("a week ago", "1 wk")


class Change(NamedTuple):
    """The change of a number since an earlier time.

    Attributes:
        sign: arrow or equals sign; empty if a number is unknown.
        text: amount of the change, such as `12 % more`.
        then: the earlier number, formatted.
    """

    since: Since
    sign: str
    text: str
    tone: Tone
    then: str


SAME: Final = 0.05
"""Relative difference up to which two numbers count as about the same."""
NOTABLE: Final = 0.2
"""Relative difference above which a change has a colour: small changes are normal."""
TIMES: Final = 3.0
"""Ratio from which a change is written as `3 times` and not as a percentage."""
FEW_POINTS: Final = 0.005
"""`SAME` for shares, of which half a percentage point is a change already."""


def change(
    since: Since, then: float | None, now: float | None, kind: Kind, better: Better
) -> Change:
    """Compare a number with an earlier one.

    Args:
        since: time of the earlier one.
        better: direction that is good news.
    """
    if then is None or now is None:
        return Change(since, "", "not known then" if now is not None else "not known", _IDLE, "")
    told = write(then, kind)
    if kind is Kind.SHARE:
        moved, text = now - then, f"{write(abs(now - then), Kind.SHARE)[:-2]} points"
        same, notable = abs(moved) < FEW_POINTS, True
        text += " more" if moved > 0 else " less"
    else:
        moved = now - then
        largest = max(abs(now), abs(then))
        same = abs(moved) <= SAME * largest
        notable = abs(moved) > NOTABLE * largest
        text = _how_much(then, now, told)
    if same:
        return Change(since, "=", "about the same", _IDLE, told)
    good = better is (Better.UP if moved > 0 else Better.DOWN)
    tone = _IDLE
    if better is not Better.NEITHER and notable:
        tone = Tone.GOOD if good else Tone.WARNING
    return Change(since, "↑" if moved > 0 else "↓", text, tone, told)


_IDLE: Final = Tone.IDLE


def _how_much(then: float, now: float, told: str) -> str:
    if then <= 0:
        return f"was {told}"
    if now >= TIMES * then:
        times = now / then
        return f"{write(times, Kind.NUMBER) if times < 1000 else '> 1000'} times"
    percent = abs(now - then) / then * 100
    return f"{percent:.0f} % {'more' if now > then else 'less'}"

"""Who is behind the numbers: the twins that do most, and those that are refused most."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from relay.history import reading
from relay.limits import hits
from relay.limits.hits import TwinHits

SHOWN: Final = 5


class Busy(NamedTuple):
    """A twin and its messages a second, in and out, over the last half minute."""

    twin: int
    rate: float


class Top(NamedTuple):
    """Both lists, the first of each first."""

    busiest: Sequence[Busy]
    refused: Sequence[TwinHits]


def look() -> Top:
    """Both lists.

    Raises:
        Away: a store does not answer.
    """
    return Top([Busy(*each) for each in reading.busiest()], hits.top(SHOWN).twins)

"""Which twins send and get most, out of the session history: its rows are up to 15 s old."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from typing import Final

from django.db.models import F

from relay.sessions.models import Session

MAX_SESSIONS: Final = 50_000
"""Open sessions that are looked at, the newest; with more of them the others have no rank."""
LOOKS: Final = 2
"""Looks that lie between the two that are compared: workers write each 15 s, not all at once."""

Totals = Mapping[int, tuple[int, int]]
"""Twin and messages of each open session, by its row."""


def look() -> Totals:
    """What the rows say now.

    Raises:
        django.db.Error: the database does not answer.
    """
    rows = Session.objects.filter(closed_at=None).order_by("-pk")
    total = F("messages_in") + F("messages_out")
    return {
        pk: (twin, messages)
        for pk, twin, messages in rows.values_list("pk", "twin", total)[:MAX_SESSIONS]
    }


class Busiest:
    """What is remembered between looks."""

    def __init__(self) -> None:
        self._looks: deque[tuple[float, Totals]] = deque(maxlen=LOOKS + 1)

    def rank(self, totals: Totals, now: float, most: int) -> list[tuple[int, float]]:
        """The twins that did most since an earlier look, and their messages a second.

        Args:
            totals: of a look at `now`, by a clock that is not set.
            most: how many.
        """
        self._looks.append((now, totals))
        before_at, before = self._looks[0]
        if now <= before_at:
            return []
        counts: Counter[int] = Counter()
        for pk, (twin, messages) in totals.items():
            counts[twin] += messages - before.get(pk, (twin, 0))[1]
        elapsed_s = now - before_at
        return [
            (twin, round(messages / elapsed_s, 1))
            for twin, messages in counts.most_common(most)
            if messages > 0
        ]

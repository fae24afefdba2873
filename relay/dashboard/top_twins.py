"""Who is behind the numbers: the sessions that send most, and the twins that are refused most."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

from relay.limits import hits
from relay.limits.hits import TwinHits
from relay.sessions import listing

SHOWN: Final = 5


class Sender(NamedTuple):
    """A session and what it sent since it is connected.

    Attributes:
        rate: messages each second, on average.
    """

    key: str
    twin: int
    messages: int
    rate: float
    opened_at: datetime


class Top(NamedTuple):
    """Both lists, the first of each first."""

    senders: Sequence[Sender]
    refused: Sequence[TwinHits]


def look() -> Top:
    """Both lists.

    Raises:
        Away: a store does not answer.
    """
    now = datetime.now(UTC)
    found = listing.live(order="-messages_in", limit=SHOWN).items
    senders = [
        Sender(
            each.key,
            each.twin,
            each.messages_in,
            each.messages_in / max(1.0, (now - each.opened_at).total_seconds()),
            each.opened_at,
        )
        for each in found
        if each.messages_in
    ]
    return Top(senders, hits.top(SHOWN).twins)

"""How fast sessions send and receive now: what grew between two looks at their counters.

A worker writes the counters of a session every 15 s, if they changed. So a rate is the growth since
the counters were last seen to change, over the time since then, and over those 15 s at least; what
was seen unchanged had not grown 15 s before, so that a pause does not count. It is right where
somebody keeps looking, as a page does that refreshes itself, and an average since the look before
otherwise. The first look at a session knows no rate. What was seen is kept in the memory of the
process that looks; a worker has nothing to do with it.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, NamedTuple

from relay.sessions.history import PROGRESS_INTERVAL_S
from relay.sessions.listing import LiveSession

MAX_KNOWN: Final = 20_000
"""Sessions whose counters are kept, a few hundred bytes each; those looked at last."""
IDLE_S: Final = 2 * PROGRESS_INTERVAL_S
"""Counters that did not change for so long do not grow."""


class Rates(NamedTuple):
    """Of one session, each second."""

    messages_in: float
    messages_out: float
    bytes_in: float
    bytes_out: float


class _Seen(NamedTuple):
    """Counters, when they were first and last seen as they are, and the rates told of them."""

    at: float
    last: float
    counters: tuple[int, ...]
    rates: Rates | None


class Looks:
    """What was seen of the counters of sessions."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: OrderedDict[tuple[str, int], _Seen] = OrderedDict()

    def rates(
        self, sessions: Sequence[LiveSession], now: float | None = None
    ) -> list[Rates | None]:
        """The rate of each of these sessions; None where it was not looked at before.

        Args:
            now: unix seconds; the clock unless given.
        """
        moment = time.time() if now is None else now
        with self._lock:
            found = [self._look(session, moment) for session in sessions]
            while len(self._seen) > MAX_KNOWN:
                self._seen.popitem(last=False)
        return found

    def _look(self, session: LiveSession, now: float) -> Rates | None:
        identity = (session.key, session.epoch)
        counters = tuple(getattr(session, name) for name in Rates._fields)
        before = self._seen.get(identity)
        if before is None:
            seen = _Seen(now, now, counters, None)
        elif counters != before.counters:
            since = max(before.at, before.last - PROGRESS_INTERVAL_S)
            over_s = max(now - since, PROGRESS_INTERVAL_S)
            grown = (
                max(0, new - old) / over_s
                for new, old in zip(counters, before.counters, strict=True)
            )
            seen = _Seen(now, now, counters, Rates(*grown))
        elif now - before.at >= IDLE_S:
            seen = before._replace(last=now, rates=Rates(0, 0, 0, 0))
        else:
            seen = before._replace(last=now)
        self._seen[identity] = seen
        self._seen.move_to_end(identity)
        return seen.rates


LOOKS: Final = Looks()
"""Of this process."""

"""The rules of delivery to other relays: which relay is next, when, and what its answer means.

A twin lists one or several relays. Its messages go to the relay that took the last one, as long as
that works; otherwise to the others in the order of their rank. Each relay that fails is left alone
for a moment: shortly after the first failures, so that one message makes up to three passes over
the relays within half a second, then for seconds, doubling up to a minute. While no relay of a
twin may be tried its messages wait, until one may or they expire.

The passes, their pauses and what counts as permanent are those of rmb-rs 1.5. Times are unix
seconds; the clock and chance are arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import Final, NamedTuple

from proto.federation.batch import ACCEPTED, HAD_ALREADY
from proto.limits.backoff import Backoff

PASS_PAUSES_S: Final[tuple[float, ...]] = (0.1, 0.2)
"""After the first and the second failure in a row: together three passes."""
BACKOFF: Final = Backoff(first_s=3.0, longest_s=60.0, jitter=0.5)
"""From the third failure in a row on."""
MAX_WAIT_S: Final = BACKOFF.longest_s * (1 + BACKOFF.jitter)
"""A stored time further away than this comes from another clock, and is not believed."""

PASS_S: Final = 60.0
"""Longer than one pass over all relays of a twin takes, if none of them answers."""

FAIR_SHARE: Final = 0.5
"""A try cut short by a message's deadline says nothing of the relay, unless it had this part of
the usual time."""


LEAST_TRY_S: Final = 0.02
"""A try has at least so long, also where its message expires sooner: clocks and timers disagree by
some milliseconds, in which tries that end at once would follow each other without a pause."""


class Outcome(Enum):
    """What one try came to."""

    ACCEPTED = "accepted"
    REFUSED = "refused"  # for good: no relay is asked again
    BUSY = "busy"  # not now, as far as this twin goes; other twins' messages may be taken
    FAILED = "failed"  # the relay does not work


def judge(status: int, retry_after: bool) -> Outcome:
    """What an answer means.

    Args:
        status: of the answer.
        retry_after: whether it says when to come back. Relays of our kind do where they refuse one
            message; a relay that is broken does not.
    """
    if status in (ACCEPTED, HAD_ALREADY):
        return Outcome.ACCEPTED
    if 400 <= status < 500 and status not in (408, 425, 429):
        return Outcome.REFUSED
    return Outcome.BUSY if retry_after else Outcome.FAILED


def deadline_s(timestamp: int, expiration_s: int, arrived_s: float, retention_s: float) -> float:
    """When a message that waits here expires.

    A sender's clock is not judged: without a time of life, or with none left when it arrived, it
    has only the retention.
    """
    last = arrived_s + retention_s
    own = timestamp + expiration_s
    return last if not expiration_s or own <= arrived_s else min(float(own), last)


class Setbacks:
    """Failures in a row at one place, and when it may be tried again.

    Attributes:
        failures: in a row, tries that went on at the same time counted as one.
        retry_at: nothing is tried before.
        failed_at: when the last one counted was known; 0 for none.
    """

    __slots__ = ("failed_at", "failures", "retry_at")

    def __init__(self, failures: int = 0, retry_at: float = 0.0, failed_at: float = 0.0) -> None:
        self.failures = failures
        self.retry_at = retry_at
        self.failed_at = failed_at

    def failed(
        self, started: float, now: float, random: Callable[[], float], wait_s: float = 0.0
    ) -> bool:
        """Takes note of a failed try.

        Args:
            started: when the try began. One that began before the last failure was known tells
                nothing new: a burst of tries at a dead place is one failure.
            now: the time.
            random: a number from 0 up to 1.
            wait_s: the place asked for at least this wait.

        Returns:
            Whether it counted.
        """
        if self.failures and started < self.failed_at:
            return False
        self.failures += 1
        self.failed_at = now
        if self.failures <= len(PASS_PAUSES_S):
            pause_s = PASS_PAUSES_S[self.failures - 1] * (1 + BACKOFF.jitter * random())
        else:
            pause_s = BACKOFF.delay_s(self.failures - len(PASS_PAUSES_S), random)
        self.retry_at = now + max(pause_s, min(wait_s, BACKOFF.longest_s))
        return True

    def succeeded(self) -> None:
        """Forgets the failures."""
        self.failures = 0
        self.retry_at = 0.0

    def stored(self, failures: int, retry_at: float, now: float) -> None:
        """Takes over what was kept, or what another process knows."""
        self.failures = failures
        self.retry_at = min(retry_at, now + MAX_WAIT_S) if failures else 0.0

    def weight(self, now: float) -> int:
        """How many failures speak against this place, when there are others.

        One that failed in the current pass comes after those that were not tried yet, whatever its
        rank. Once it could have been tried again for a while, only its rank counts.
        """
        return self.failures if now < self.retry_at + PASS_S else 0


class Choice(NamedTuple):
    """Where the next message goes.

    Attributes:
        relay: None: nowhere now.
        at: then the time at which to choose again; infinite if no time is known.
    """

    relay: str | None
    at: float


class Candidate(NamedTuple):
    """One relay of a twin.

    Attributes:
        relay: its domain.
        retry_at: when it may be tried again.
        weight: failures that speak against it, see `Setbacks.weight`.
    """

    relay: str
    retry_at: float = 0.0
    weight: int = 0


def choose(ranked: Iterable[Candidate], sticky: str | None, now: float) -> Choice:
    """Picks the relay of one twin that is tried next.

    Args:
        ranked: the twin's relays, the best first.
        sticky: the one that took the last message.
        now: the time.
    """
    best: Candidate | None = None
    earliest = float("inf")
    for candidate in ranked:
        if candidate.retry_at > now:
            earliest = min(earliest, candidate.retry_at)
        elif candidate.relay == sticky and not candidate.weight:
            return Choice(sticky, now)
        elif best is None or candidate.weight < best.weight:
            best = candidate
    return Choice(best.relay, now) if best is not None else Choice(None, earliest)


def time_out_s(usual_s: float, deadline: float, now: float) -> float:
    """How long one try may take: hardly longer than its messages live."""
    return min(usual_s, max(LEAST_TRY_S, deadline - now))


def counts(elapsed_s: float, usual_s: float) -> bool:
    """Whether a try that ended without an answer had enough time to say something of the relay."""
    return elapsed_s >= usual_s * FAIR_SHARE

"""Rules of delivery to partner relays: which relay is tried next, when, and what its answer means.

A twin lists one or several relays. Its messages go to the relay that accepted the last one, as long
as that relay works, otherwise to the others in the order of their rank. A relay that fails is not
tried again for a while. After the first failures the pauses are short, so that one message makes at
most three passes over the relays within half a second; after that they take seconds, doubling up to
a minute. While none of a twin's relays may be tried, its messages wait until one may be, or until
they expire.

The passes, their pauses and the permanent errors are those of rmb-rs 1.5. Times are Unix seconds;
the clock and randomness are arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import Final, NamedTuple

from proto.federation.batch import ACCEPTED, HAD_ALREADY
from proto.limits.backoff import Backoff

PASS_PAUSES_S: Final[tuple[float, ...]] = (0.1, 0.2)
"""Pauses after the first and the second failure in a row, which give three passes in all."""
BACKOFF: Final = Backoff(first_s=3.0, longest_s=60.0, jitter=0.5)
"""Back-off from the third failure in a row on."""
MAX_WAIT_S: Final = BACKOFF.longest_s * (1 + BACKOFF.jitter)
"""Maximum wait. A stored time further in the future comes from another clock and is limited to
this."""

PASS_S: Final = 60.0
"""Duration longer than one pass over all relays of a twin, even if none of them answers."""

FAIR_SHARE: Final = 0.5
"""A try that a message's deadline cut short counts against the relay only if it had at least this
share of the usual time-out."""


LEAST_TRY_S: Final = 0.02
"""Minimum duration of a try, even if its message expires sooner. Clocks and timers disagree by some
milliseconds, during which tries that end at once would follow each other without a pause."""


class Outcome(Enum):
    """Outcome of one try."""

    ACCEPTED = "accepted"
    REFUSED = "refused"  # permanent: no other relay is tried
    BUSY = "busy"  # not now, for this twin; messages of other twins may be accepted
    FAILED = "failed"  # the relay does not work


def judge(status: int, retry_after: bool) -> Outcome:
    """Return the outcome that an answer means.

    Args:
        status: HTTP status of the answer.
        retry_after: whether the answer has Retry-After. Relays of this implementation send it where
            they refuse a single message; a broken relay does not.
    """
    if status in (ACCEPTED, HAD_ALREADY):
        return Outcome.ACCEPTED
    if 400 <= status < 500 and status not in (408, 425, 429):
        return Outcome.REFUSED
    return Outcome.BUSY if retry_after else Outcome.FAILED


def deadline_s(timestamp: int, expiration_s: int, arrived_s: float, retention_s: float) -> float:
    """Return the time at which a message that waits here expires.

    The sender's clock is not trusted: a message without an expiration, or one already past it on
    arrival, expires after the retention alone.
    """
    last = arrived_s + retention_s
    own = timestamp + expiration_s
    return last if not expiration_s or own <= arrived_s else min(float(own), last)


class Setbacks:
    """Consecutive failures of one destination, and the time at which it may be tried again.

    Attributes:
        failures: number of failures in a row; concurrent tries count as one.
        retry_at: time before which it is not tried.
        failed_at: time at which the last counted failure was known; 0 before the first.
    """

    __slots__ = ("failed_at", "failures", "retry_at")

    def __init__(self, failures: int = 0, retry_at: float = 0.0, failed_at: float = 0.0) -> None:
        self.failures = failures
        self.retry_at = retry_at
        self.failed_at = failed_at

    def failed(
        self, started: float, now: float, random: Callable[[], float], wait_s: float = 0.0
    ) -> bool:
        """Record a failed try.

        Args:
            started: time at which the try began. One that began before the last failure was known
                adds no information: a burst of tries at a dead destination is one failure.
            now: current time.
            random: function that returns a number from 0 up to 1.
            wait_s: minimum wait that the destination asked for.

        Returns:
            Whether the failure counted.
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
        """Reset the failures."""
        self.failures = 0
        self.retry_at = 0.0

    def stored(self, failures: int, retry_at: float, now: float) -> None:
        """Adopt state that was stored, or that another process has learned."""
        self.failures = failures
        self.retry_at = min(retry_at, now + MAX_WAIT_S) if failures else 0.0

    def weight(self, now: float) -> int:
        """Return the number of failures that count against this destination when there are others.

        A destination that failed in the current pass comes after those not tried yet, whatever its
        rank. Once a minute has passed since it could have been tried again, only its rank counts.
        """
        return self.failures if now < self.retry_at + PASS_S else 0


class Choice(NamedTuple):
    """Relay that the next message goes to.

    Attributes:
        relay: domain of the relay; None if no relay may be tried now.
        at: time at which to choose again if there is no relay; infinite if no time is known.
    """

    relay: str | None
    at: float


class Candidate(NamedTuple):
    """One relay of a twin.

    Attributes:
        relay: domain of the relay.
        retry_at: time at which it may be tried again.
        weight: failures that count against it, see `Setbacks.weight`.
    """

    relay: str
    retry_at: float = 0.0
    weight: int = 0


def choose(ranked: Iterable[Candidate], sticky: str | None, now: float) -> Choice:
    """Choose the relay of one twin that is tried next.

    Args:
        ranked: relays of the twin, best first.
        sticky: relay that accepted the last message.
        now: current time.
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
    """Return the time-out of one try, which is hardly longer than its messages live."""
    return min(usual_s, max(LEAST_TRY_S, deadline - now))


def counts(elapsed_s: float, usual_s: float) -> bool:
    """Return whether a try that ended without an answer took long enough to count against the
    relay.
    """
    return elapsed_s >= usual_s * FAIR_SHARE

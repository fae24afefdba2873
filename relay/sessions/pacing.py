"""Back-pressure on connections whose messages are refused.

A refusal costs a worker about as much as a delivery, and a client that is notified at once sends
the next message at once. So each message in vain (a refusal, or a ping) is charged to its twin and
to the worker by virtual scheduling (GCRA): it advances the time by which all of them would have
arrived at the allowed rate. A connection that is ahead of its rate by more than a burst is not read
until it no longer is. Messages that pass give time back, so a client that stops is read at full
speed again.

All connections of a twin at a worker share one `Pace`: twenty of them get no more than one.
"""

from __future__ import annotations

from typing import Final

from proto.rmb.reasons import SessionReason

VAIN_PER_S: Final = 2_000
"""Messages in vain that a worker accepts of one twin per second."""
BURST_S: Final = 0.25
"""Seconds that a twin may be ahead of its rate before it is read more slowly: 500 messages."""
WORKER_VAIN_PER_S: Final = 5_000
"""Messages in vain that a worker accepts of all twins per second: about a twentieth of its time."""
WORKER_BURST_S: Final = 0.1
LONGEST_SHARE: Final = 32
"""Maximum pause for the worker's sake, as a multiple of the pause that the twin's own rate
requires: one refused message does not wait for the thousands of others."""
END_COST: Final = 400
"""Messages in vain charged for input that ends its session: the twin has to sign in again, and may
do so five times a second."""

REFUSED_INPUT: Final = frozenset(
    {
        SessionReason.UNPARSABLE,
        SessionReason.TEXT_FRAME,
        SessionReason.TOO_LARGE,
        SessionReason.PROTOCOL_ERROR,
    }
)
"""Reasons of sessions that were ended by the client's input."""
ANSWER_COST: Final = 1 / 8
"""Messages in vain charged for a refused response: no notice is sent for it, and a client that
floods a twin with requests and does not read the answers must not slow that twin down."""


class Pace:
    """The time by which all messages in vain of a twin, or a worker, are due at the allowed rate.

    Attributes:
        due_s: that time, of a monotonic clock; 0 if nothing is left to be paid off.
    """

    __slots__ = ("due_s",)

    def __init__(self) -> None:
        self.due_s = 0.0

    def charge(self, cost_s: float, now_s: float) -> float:
        """Add to what was sent in vain, and return the seconds that it is ahead of the rate.

        Args:
            cost_s: seconds to add; negative for messages that passed.
            now_s: time of a monotonic clock.
        """
        ahead_s = max(0.0, self.ahead_s(now_s) + cost_s)
        self.due_s = now_s + ahead_s if ahead_s else 0.0
        return ahead_s

    def ahead_s(self, now_s: float) -> float:
        """Return the seconds that it is ahead of the allowed rate."""
        return max(0.0, self.due_s - now_s)


def pause_s(twin: Pace, worker: Pace, vain: float, passed: float, now_s: float) -> float:
    """Charge the messages of one read, and return the seconds for which its connection is not read.

    Args:
        twin: pace of the sender.
        worker: pace of all senders.
        vain: number of messages that were refused, and pings.
        passed: number of the others.
        now_s: time of a monotonic clock.
    """
    ahead_s = twin.charge((vain - passed) / VAIN_PER_S, now_s)
    own_s = max(0.0, ahead_s - BURST_S)
    if not vain:
        return own_s
    worker_s = worker.charge(vain / WORKER_VAIN_PER_S, now_s) - WORKER_BURST_S
    return max(own_s, min(worker_s, LONGEST_SHARE * vain / VAIN_PER_S))

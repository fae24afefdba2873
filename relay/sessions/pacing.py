"""Back-pressure on connections whose messages are refused.

A refusal costs a worker about as much as a delivery, and a client that is told at once sends the
next message at once. So each message in vain (a refusal, or a ping) is charged to its twin and to
the worker by virtual scheduling (GCRA): it moves the time by which all of them would have come at
the allowed rate. A connection that is ahead of that time by more than a burst is not read until it
has come. Messages that pass give time back, so a client that stops is read at full speed again.

All connections of a twin at a worker share one `Pace`: twenty of them get no more than one.
"""

from __future__ import annotations

from typing import Final

from proto.rmb.reasons import SessionReason

VAIN_PER_S: Final = 2_000
"""Messages in vain that a worker takes of one twin per second."""
BURST_S: Final = 0.25
"""What a twin may be ahead of its rate before it is read slower: 500 messages."""
WORKER_VAIN_PER_S: Final = 5_000
"""Messages in vain that a worker takes of all twins per second: a twentieth of its time or so."""
WORKER_BURST_S: Final = 0.1
LONGEST_SHARE: Final = 32
"""What a twin waits for the worker's sake is at most so many times what its own rate asks for: one
refused message does not wait for the thousands of others."""
END_COST: Final = 400
"""Messages in vain that input counts for which ends its session: the twin has to sign in again, and
may do so five times a second."""

REFUSED_INPUT: Final = frozenset(
    {
        SessionReason.UNPARSABLE,
        SessionReason.TEXT_FRAME,
        SessionReason.TOO_LARGE,
        SessionReason.PROTOCOL_ERROR,
    }
)
"""What a client sent ended its session."""
ANSWER_COST: Final = 1 / 8
"""Messages in vain that a refused response counts for: nobody is told of it, and who floods a twin
with requests and does not read the answers must not slow that twin down."""


class Pace:
    """When a twin, or a worker, would have sent all it sent in vain at the allowed rate.

    Attributes:
        due_s: that time, of a monotonic clock; 0 where nothing is to be paid off.
    """

    __slots__ = ("due_s",)

    def __init__(self) -> None:
        self.due_s = 0.0

    def charge(self, cost_s: float, now_s: float) -> float:
        """Add to what was sent in vain; return how far it is ahead of the allowed rate, in seconds.

        Args:
            cost_s: negative for messages that passed.
            now_s: a monotonic clock.
        """
        ahead_s = max(0.0, self.ahead_s(now_s) + cost_s)
        self.due_s = now_s + ahead_s if ahead_s else 0.0
        return ahead_s

    def ahead_s(self, now_s: float) -> float:
        """How far it is ahead of the allowed rate."""
        return max(0.0, self.due_s - now_s)


def pause_s(twin: Pace, worker: Pace, vain: float, passed: float, now_s: float) -> float:
    """Charge what one read brought; return for how long its connection is not read.

    Args:
        twin: of the sender.
        worker: of all senders.
        vain: messages that were refused, and pings.
        passed: the others.
        now_s: a monotonic clock.
    """
    ahead_s = twin.charge((vain - passed) / VAIN_PER_S, now_s)
    own_s = max(0.0, ahead_s - BURST_S)
    if not vain:
        return own_s
    worker_s = worker.charge(vain / WORKER_VAIN_PER_S, now_s) - WORKER_BURST_S
    return max(own_s, min(worker_s, LONGEST_SHARE * vain / VAIN_PER_S))

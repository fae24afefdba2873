"""Counters of the drainers: once a second each adds its counts to the hash `federation:counters`.

A field is `<name>|<label>`. The label is the relay for deliveries and failures, the reason for
messages that were given up, the series of the metrics for analytics events, and the upper bound of
the bucket for the histogram of latencies, in which each message is counted in one bucket only.
`relay.federation.figures` turns the counters into metrics.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

from proto.rmb.reasons import MessageReason

SUCCESS: Final = "success"
"""Messages that a relay accepted."""
ERROR: Final = "error"
"""Delivery attempts that a relay did not answer with success."""
DROPPED: Final = "dropped"
"""Messages that were given up, by reason (`proto.rmb.reasons`)."""
EVENTS: Final = "events"
"""Events recorded for analytics, and events lost; the label is the series of the metrics."""
LATENCY: Final = "latency"
"""Messages by the time from the outbox to the answer of the relay that accepted them."""
LATENCY_SUM_MS: Final = "sum_ms"
"""Label of the sum of all latencies."""

SEPARATOR: Final = "|"

LATENCY_BOUNDS_S: Final[tuple[float, ...]] = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 600.0),
)
"""Upper bounds of all buckets but the last, which takes the rest: back-off and retention can hold a
message for an hour."""
LATENCY_LABELS: Final = (*(f"{bound_s:g}" for bound_s in LATENCY_BOUNDS_S), "+Inf")


def field(name: str, label: str) -> str:
    """Return the name of a field of the hash."""
    return f"{name}{SEPARATOR}{label}"


class Tally:
    """Counts of the drainers of one process that are not stored yet."""

    __slots__ = ("_buckets", "_counts", "_sum_s")

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._buckets = [0] * len(LATENCY_LABELS)
        self._sum_s = 0.0

    def delivered(self, relay: str, latencies_s: Sequence[float]) -> None:
        """Record messages that a relay accepted, one for each latency.

        Args:
            relay: domain of the relay.
            latencies_s: seconds since each message came to the outbox.
        """
        self._add(field(SUCCESS, relay), len(latencies_s))
        buckets = self._buckets
        for latency_s in latencies_s:
            buckets[bisect_left(LATENCY_BOUNDS_S, latency_s)] += 1
            if latency_s > 0:
                self._sum_s += latency_s

    def failed(self, relay: str) -> None:
        """Record that a relay refused a message, or did not answer."""
        self._add(field(ERROR, relay), 1)

    def take(self) -> dict[str, int]:
        """Return all counts since the last call, to be added by `HINCRBY`."""
        for label, messages in zip(LATENCY_LABELS, self._buckets, strict=True):
            if messages:
                self._add(field(LATENCY, label), messages)
        if any(self._buckets):
            self._add(field(LATENCY, LATENCY_SUM_MS), round(self._sum_s * 1000))
        self._buckets = [0] * len(LATENCY_LABELS)
        self._sum_s = 0.0
        counts, self._counts = self._counts, {}
        return counts

    def dropped(self, reason: MessageReason) -> None:
        """Record that a message was given up."""
        self._add(field(DROPPED, reason.value), 1)

    def _add(self, name: str, count: int) -> None:
        self._counts[name] = self._counts.get(name, 0) + count

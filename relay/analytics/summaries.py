"""Sums of results over days, for pages, REST and the monthly report.

Percentiles of hours cannot be summed: the worst hour is shown instead.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from django.db.models import Count, F, Max, Min, Q, QuerySet, Sum
from django.db.models.functions import Coalesce

from relay.analytics.spark.protocols import RMB

US_PER_S: Final = 1_000_000


class Flow(NamedTuple):
    """Traffic from one relay to another."""

    origin: str
    final: str
    messages: int
    bytes: int


def matrix(rows: QuerySet[Any]) -> list[Flow]:
    """Return the rows of `traffic_matrix` summed by pair of relays, most messages first."""
    found = rows.values("origin", "final").annotate(count=Sum("messages"), sum_bytes=Sum("bytes"))
    flows = [
        Flow(each["origin"], each["final"], each["count"], each["sum_bytes"]) for each in found
    ]
    return sorted(flows, key=lambda flow: (-flow.messages, flow.origin, flow.final))


CARRIED: Final = ("opened", "accepted", "accepted_bytes", "dropped")


def carried(rows: QuerySet[Any], protocol: str) -> dict[str, int]:
    """Return the sums of the rows of `protocol_hour` of one protocol."""
    sums = {f"sum_{name}": Sum(name) for name in CARRIED}
    found = rows.filter(protocol=protocol).aggregate(**sums)
    return {name: found[f"sum_{name}"] or 0 for name in CARRIED}


class Budget(NamedTuple):
    """Attempts to a partner relay, compared to the objective.

    Attributes:
        allowed: attempts that may fail within the objective.
        bad_hours: hours in which fewer attempts succeeded than the objective requires.
        worst_permille: successful attempts per thousand in the worst hour.
        worst_p95_s: 95th percentile of the round trips in the slowest hour, in seconds.
    """

    remote: str
    attempts: int
    ok: int
    allowed: float
    hours: int
    bad_hours: int
    worst_permille: int
    worst_p95_s: float | None

    @property
    def failed(self) -> int:
        return self.attempts - self.ok

    @property
    def share(self) -> float:
        """Share of the attempts that succeeded."""
        return self.ok / self.attempts if self.attempts else 1.0

    @property
    def left(self) -> float:
        """Share of the error budget that is left: 1 is all of it, below 0 is overspent."""
        if not self.failed:
            return 1.0
        return 1 - self.failed / self.allowed if self.allowed else -1.0


def budgets(rows: QuerySet[Any], objective: float) -> list[Budget]:
    """Return the rows of `federation_slo` summed by relay, smallest remaining budget first.

    Args:
        objective: share of all attempts that must succeed, from 0 to 1.
    """
    bad = Q(ok__lt=F("attempts") * objective)
    found = rows.values("remote").annotate(
        sum_attempts=Sum("attempts"),
        sum_ok=Sum("ok"),
        hours=Count("pk"),
        bad_hours=Count("pk", filter=bad),
        worst=Min("permille"),
        slowest=Max("p95_us"),
    )
    budgets = [
        Budget(
            each["remote"],
            each["sum_attempts"],
            each["sum_ok"],
            each["sum_attempts"] * (1 - objective),
            each["hours"],
            each["bad_hours"],
            each["worst"],
            None if each["slowest"] is None else each["slowest"] / US_PER_S,
        )
        for each in found
    ]
    return sorted(budgets, key=lambda budget: (budget.left, budget.remote))


class Curve(NamedTuple):
    """Highest number of sessions of a protocol on a relay, hour by hour; None without a row."""

    relay: str
    protocol: str
    values: list[int | None]

    @property
    def label(self) -> str:
        """Name of the curve in a chart."""
        relay = self.relay or "unknown"
        return relay if self.protocol == RMB else f"{relay} ({self.protocol.upper()})"


def concurrency(rows: QuerySet[Any], begin: datetime, hours: int) -> list[Curve]:
    """Return the rows of `concurrency` as curves over the same hours, highest peak first.

    An hour without a row, in which no session opened or closed on the relay, is a gap in the curve.
    """
    found: dict[tuple[str, str], list[int | None]] = {}
    for relay, protocol, hour, peak in rows.values_list("relay", "protocol", "hour", "peak"):
        place = (hour - begin) // timedelta(hours=1)
        if 0 <= place < hours:
            found.setdefault((relay, protocol), [None] * hours)[place] = peak
    curves = [Curve(*of, values) for of, values in found.items()]
    return sorted(curves, key=lambda curve: (-_most(curve.values), curve.relay, curve.protocol))


def _most(values: Iterable[int | None]) -> int:
    return max((value for value in values if value is not None), default=0)


AUDITED: Final = (
    "uids", "accepted", "delivered_once", "duplicated", "extra_deliveries", "late", "dropped",
    "expired", "conflicting", "handed_over", "in_flight", "in_gap", "unaccounted", "gaps",
    "gap_events", "gap_estimate", "gap_at_most", "gaps_unknown",
)  # fmt: skip
SINCE_ESTIMATES: Final = {
    "gap_estimate": "gap_events", "gap_at_most": "gap_events", "gaps_unknown": "gaps",
}  # fmt: skip
"""Columns that rows of earlier releases lack, and the columns used in their place."""


def audited(rows: QuerySet[Any]) -> dict[str, int]:
    """Return the sums of the rows of `audit`."""
    sums = {
        name: Sum(Coalesce(name, SINCE_ESTIMATES[name]) if name in SINCE_ESTIMATES else name)
        for name in AUDITED
    }
    found = rows.aggregate(**{f"sum_{name}": each for name, each in sums.items()})
    return {name: found[f"sum_{name}"] or 0 for name in AUDITED}


USED: Final = (
    "accepted", "accepted_bytes", "delivered", "delivered_bytes", "dropped", "session_seconds",
)  # fmt: skip


class UsageTotal(NamedTuple):
    """Usage of all twins together in a month; the last line of the bill."""

    twins: int
    sums: dict[str, int]


def used(rows: QuerySet[Any]) -> UsageTotal:
    """Return the sums of the rows of `usage`."""
    found = rows.aggregate(twins=Count("pk"), **{f"sum_{name}": Sum(name) for name in USED})
    return UsageTotal(found["twins"], {name: found[f"sum_{name}"] or 0 for name in USED})

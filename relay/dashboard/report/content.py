"""Contents of the monthly report: sums over all days, and what needs attention."""

from __future__ import annotations

import calendar
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, Final, NamedTuple

from django.conf import settings
from django.db.models import F
from django.utils import timezone

from relay.access.errors import Invalid, NotFound
from relay.analytics import listing, summaries
from relay.analytics.models import Published
from relay.analytics.spark.protocols import RMB
from relay.analytics.summaries import US_PER_S, Budget
from relay.dashboard import curves, heat
from relay.dashboard.figures import Kind, write

MOST: Final = 15
"""Maximum lines of a list: the console's pages and the exported files contain all."""
MOMENTS: Final = 6
TABLES: Final = {
    "traffic_matrix": "Traffic",
    "federation_slo": "Federation",
    "concurrency": "Sessions",
    "audit": "Delivery",
    "anomalies": "Anomalies",
    "usage": "Usage",
}
"""Tables that the report uses, with the titles of their sections."""


class Fact(NamedTuple):
    """A key figure; `bad`: whether it needs attention."""

    label: str
    text: str
    bad: bool = False


class Listed(NamedTuple):
    """A table: heads and rows of text, the first `words` columns of which are not numbers."""

    heads: tuple[str, ...]
    rows: list[tuple[str, ...]]
    words: int = 1


class Report(NamedTuple):
    """The report.

    Attributes:
        title: month in words, such as November 2026.
        missing: days that sections lack, in words; empty if the report is complete.
        own: domain of this relay; "this relay" if it has none.
    """

    month: str
    title: str
    own: str
    made_at: datetime
    objective: float
    facts: list[Fact]
    missing: list[str]
    traffic: heat.Heat | None
    budgets: list[Budget]
    federation: Listed
    sessions: curves.Drawing | None
    storms: Listed
    delivery: Listed
    anomalies: Listed
    usage: Listed


def gather(month: str, now: datetime | None = None) -> Report:
    """Return the report of a month, `YYYY-MM`.

    Raises:
        Invalid: the text is not a month.
        NotFound: no day of the month is computed.
    """
    first, last = _days(month)
    if not Published.objects.filter(table__in=TABLES, period__startswith=month).exists():
        raise NotFound(f"no day of {month} is computed")
    objective = settings.RMB.analytics.objective_percent / 100
    flows = summaries.matrix(listing.of_month("traffic_matrix", month))
    budgets = summaries.budgets(listing.of_month("federation_slo", month), objective)
    audit = summaries.audited(listing.of_month("audit", month))
    used = summaries.used(listing.of_month("usage", month))
    storms = listing.of_month("storms", month)
    anomalies = listing.of_month("anomalies", month)
    lines = summaries.concurrency(
        listing.of_month("concurrency", month),
        datetime.combine(first, time(), UTC),
        ((last - first).days + 1) * 24,
    )
    missed = sum(each.left < 0 for each in budgets)
    facts = [
        Fact("Messages", write(sum(flow.messages for flow in flows), Kind.NUMBER)),
        Fact("Bytes", write(sum(flow.bytes for flow in flows), Kind.BYTES)),
        Fact("Twins that used it", write(used.twins, Kind.NUMBER)),
        Fact("Most sessions on a relay", _peak(lines)),
        Fact("Unaccounted", write(audit["unaccounted"], Kind.NUMBER), audit["unaccounted"] > 0),
        Fact("Relays below the objective", f"{missed} of {len(budgets)}", missed > 0),
        Fact("Anomalies", write(anomalies.count(), Kind.NUMBER)),
        Fact("Storms of reconnects", write(storms.count(), Kind.NUMBER)),
    ]
    values = {(_named(flow.origin), _named(flow.final)): flow.messages for flow in flows}
    return Report(
        month=month,
        title=f"{first:%B %Y}",
        own=next(iter(settings.RMB.relay.domains), "this relay"),
        made_at=now or timezone.now(),
        objective=objective,
        facts=facts,
        missing=_missing(month, first, last),
        traffic=heat.draw(values, Kind.NUMBER) if values else None,
        budgets=budgets,
        federation=_federation(budgets),
        sessions=_curves(lines, first, last),
        storms=_storms(storms),
        delivery=_delivery(audit),
        anomalies=_anomalies(anomalies),
        usage=_usage(listing.of_month("usage", month)),
    )


def _days(month: str) -> tuple[date, date]:
    try:
        first = datetime.strptime(month, "%Y-%m").date()
    except ValueError:
        raise Invalid(fields={"month": "must be a month such as 2026-11"}) from None
    if f"{first:%Y-%m}" != month:
        raise Invalid(fields={"month": "must be a month such as 2026-11"})
    return first, first.replace(day=calendar.monthrange(first.year, first.month)[1])


def _missing(month: str, first: date, last: date) -> list[str]:
    """Describe missing days: a report of half a month must say so."""
    wanted = (last - first).days + 1
    found = []
    for table, title in TABLES.items():
        there = sum(each.startswith(month) for each in listing.periods(table))
        if table == "usage":
            if not there:
                found.append(f"{title}: not computed")
            elif (at := _made_before_its_end(month, last)) is not None:
                found.append(f"{title}: as of {at:%Y-%m-%d %H:%M} UTC")
        elif there < wanted:
            found.append(f"{title}: {there} of {wanted} days are computed")
    return found


def _made_before_its_end(month: str, last: date) -> datetime | None:
    """Return when the usage was computed, if that was before the end of the month."""
    at = Published.objects.get(table="usage", period=month).published_at.astimezone(UTC)
    return at if at.date() <= last else None


def _peak(lines: list[summaries.Curve]) -> str:
    peaks = [value for line in lines for value in line.values if value is not None]
    return write(max(peaks, default=None), Kind.NUMBER)


def _curves(lines: list[summaries.Curve], first: date, last: date) -> curves.Drawing | None:
    if not lines:
        return None
    step = timedelta(days=(last - first).days + 1) / (MOMENTS - 1)
    begin = datetime.combine(first, time(), UTC)
    moments = [f"{begin + step * number:%b %d}" for number in range(MOMENTS)]
    return curves.draw([(each.label, each.values) for each in lines], moments, Kind.NUMBER)


def _federation(budgets: list[Budget]) -> Listed:
    return Listed(
        ("Relay", "Objective", "Budget left", "Attempts", "Failed", "Succeeded", "Bad hours"),
        [
            (
                _named(each.remote),
                "missed" if each.left < 0 else "kept",
                write(each.left, Kind.SHARE),
                write(each.attempts, Kind.NUMBER),
                write(each.failed, Kind.NUMBER),
                write(each.share, Kind.SHARE),
                write(each.bad_hours, Kind.NUMBER),
            )
            for each in budgets
        ],
        words=2,
    )


def _storms(rows: Any) -> Listed:
    return Listed(
        ("Began (UTC)", "Twin or key", "Openings", "Lasted"),
        [
            (
                f"{datetime.fromtimestamp(each.first_us / US_PER_S, UTC):%Y-%m-%d %H:%M}",
                str(each.twin) if each.protocol == RMB else each.session,
                write(each.opens, Kind.NUMBER),
                write((each.last_us - each.first_us) / US_PER_S, Kind.DURATION),
            )
            for each in rows.order_by("-opens", "pk")[:MOST]
        ],
        words=2,
    )


def _delivery(sums: dict[str, int]) -> Listed:
    lines = (
        ("messages", "uids"),
        ("delivered once", "delivered_once"),
        ("delivered more than once", "duplicated"),
        ("delivered after more than a minute", "late"),
        ("dropped", "dropped"),
        ("of these expired", "expired"),
        ("handed to relays that do not record here", "handed_over"),
        ("in flight", "in_flight"),
        ("in gaps of recorders", "in_gap"),
        ("unaccounted", "unaccounted"),
    )
    found: list[tuple[str, ...]] = [(label, f"{sums[name]:,}") for label, name in lines]
    if sums["gaps"]:
        rows = f"about {sums['gap_estimate']:,}, at most {sums['gap_at_most']:,}"
        unknown = f", unknown for {sums['gaps_unknown']:,}" if sums["gaps_unknown"] else ""
        found.append((f"rows lost in {sums['gaps']:,} gaps of recorders{unknown}", rows))
    return Listed(("Results of messages", "Messages"), found)


def _anomalies(rows: Any) -> Listed:
    far = rows.annotate(off=F("accepted") - F("median")).annotate(distance=F("off") * F("off"))
    return Listed(
        ("Hour (UTC)", "Twin", "What", "Sent", "Usual"),
        [
            (
                f"{each.hour:%Y-%m-%d %H:%M}",
                str(each.twin) if each.protocol == RMB else each.protocol.upper(),
                "burst" if each.accepted > each.median else "silence",
                write(each.accepted, Kind.NUMBER),
                write(each.median, Kind.NUMBER),
            )
            for each in far.order_by("-distance", "pk")[:MOST]
        ],
        words=3,
    )


def _usage(rows: Any) -> Listed:
    return Listed(
        ("Twin", "Sent", "Bytes", "Delivered", "Dropped", "Connected"),
        [
            (
                str(each.twin),
                write(each.accepted, Kind.NUMBER),
                write(each.accepted_bytes, Kind.BYTES),
                write(each.delivered, Kind.NUMBER),
                write(each.dropped, Kind.NUMBER),
                write(each.session_seconds, Kind.DURATION),
            )
            for each in rows.order_by("-accepted_bytes", "twin")[:MOST]
        ],
    )


def _named(relay: str) -> str:
    return relay or "unknown"

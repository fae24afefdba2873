"""Sessions over time: the number open at once, and storms of reconnects."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from typing import Any, Final

from django.http import HttpRequest
from django.http.response import HttpResponseBase

from relay.analytics import listing, summaries
from relay.analytics.models import Storm
from relay.analytics.spark.protocols import RMB
from relay.analytics.summaries import US_PER_S
from relay.dashboard import analytics, curves, spans
from relay.dashboard.figures import Kind
from relay.dashboard.pages import page
from relay.dashboard.tables import Ask, Cell, Column, Row, Table, respond
from relay.ops.paging import Page

TITLE: Final = "Sessions over time"

STORMS: Final = (
    Column("first", "Began", Cell.LINE, order="first", hint="first start (UTC)"),
    Column("twin", "Twin", order="twin"),
    Column("session", "Session", hint="session id, if any; for SBD the key of the client"),
    Column("protocol", "Protocol"),
    Column("opens", "Openings", Kind.NUMBER, order="opens"),
    Column("lasted_s", "Lasted", Kind.DURATION, hint="from the first to the last start"),
    Column("rate", "Every", Kind.DURATION, hint="average time between two starts"),
)
ORDERS: Final = {"first": "first_us", "twin": "twin", "opens": "opens"}
MOMENTS: Final = 6


@page(analytics.VIEW)
def sessions(request: HttpRequest) -> HttpResponseBase:
    """Show the curve of some days, and their storms."""
    days = spans.days(request, "concurrency")
    if days is None:
        return analytics.nothing(request, TITLE, "sessions")

    def fetch(ask: Ask) -> Page[Row]:
        rows = analytics.of_sender(listing.rows("storms", days.first, days.last), ask)
        found = ask.page(rows, ORDERS)
        return Page([_storm(request, each) for each in found.items], found.next)

    table = Table(
        request, "storms", STORMS, fetch, order="-opens", title="Storms of reconnects",
        filters=[analytics.TWIN, analytics.PROTOCOL],
        empty="No session was opened five times in a row, at most ten minutes apart.",
    )  # fmt: skip
    context = {"days": days, "label": "Most sessions at once, by hour", **_curves(days)}
    return respond(
        request, table, "relay_dashboard/analytics_sessions.html", TITLE,
        analytics.frame(request, context),
    )  # fmt: skip


def _curves(days: spans.Days) -> dict[str, Any]:
    begin = datetime.combine(days.first, time(), UTC)
    hours = days.wanted * 24
    rows = listing.rows("concurrency", days.first, days.last)
    found = summaries.concurrency(rows, begin, hours)
    if not found:
        return {}
    lines = [(each.label, each.values) for each in found]
    step = timedelta(hours=hours) / (MOMENTS - 1)
    shape = "%b %d" if days.wanted > MOMENTS else "%b %d %H:%M"
    moments = [f"{begin + step * number:{shape}}" for number in range(MOMENTS)]
    drawing = curves.draw(lines, moments, Kind.NUMBER)
    return {"curves": drawing, "more": len(lines) - len(drawing.curves)}


def _storm(request: HttpRequest, storm: Storm) -> Row:
    lasted_s = (storm.last_us - storm.first_us) / US_PER_S
    values = {
        "first": f"{datetime.fromtimestamp(storm.first_us / US_PER_S, UTC):%Y-%m-%d %H:%M:%S}",
        "twin": storm.twin if storm.protocol == RMB else None,
        "session": storm.session,
        "protocol": analytics.PROTOCOLS.get(storm.protocol, storm.protocol),
        "opens": storm.opens,
        "lasted_s": lasted_s,
        "rate": lasted_s / (storm.opens - 1) if storm.opens > 1 else None,
    }
    return Row(values, analytics.twin_link(request, "twin", storm.twin))

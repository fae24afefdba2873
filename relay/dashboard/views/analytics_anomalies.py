"""Hours in which a twin, or SBD, sent far more or far fewer messages than in the week before."""

from __future__ import annotations

from typing import Any, Final

from django.db.models import F
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from relay.analytics import listing
from relay.analytics.models import Anomaly
from relay.analytics.spark.protocols import RMB
from relay.dashboard import analytics, spans
from relay.dashboard.figures import Kind
from relay.dashboard.pages import page
from relay.dashboard.states import State, Tone
from relay.dashboard.tables import Ask, Cell, Column, Filter, Row, Table, respond
from relay.ops.paging import Page

TITLE: Final = "Anomalies"

COLUMNS: Final = (
    Column("hour", "Hour", Cell.LINE, order="hour", hint="UTC"),
    Column("twin", "Twin", order="twin", hint="none: all keys of SBD together"),
    Column("protocol", "Protocol"),
    Column("kind", "What", Cell.STATE),
    Column("accepted", "Sent", Kind.NUMBER, order="accepted", hint="messages in this hour"),
    Column("median", "Usual", Kind.NUMBER, order="median", hint="median of the 168 hours before"),
    Column("deviation", "Spread", Kind.NUMBER,
           hint="median absolute deviation of these hours"),
    Column("times", "Deviations", Kind.NUMBER,
           hint="distance from the median, in usual deviations; at least 6"),
)  # fmt: skip
FILTERS: Final = (
    analytics.TWIN,
    analytics.PROTOCOL,
    Filter("kind", "What", (("burst", "burst"), ("silence", "silence"))),
)
ORDERS: Final = {"hour": "hour", "twin": "twin", "accepted": "accepted", "median": "median"}
BURST: Final = State("burst", Tone.WARNING, "far more than usual")
SILENCE: Final = State("silence", Tone.INFO, "far fewer than usual")
SIGMA: Final = 1.4826
"""Ratio of standard deviation to median absolute deviation, for a normal distribution."""


@page(analytics.VIEW)
def anomalies(request: HttpRequest) -> HttpResponseBase:
    """List the anomalies of some days, the latest first."""
    days = spans.days(request, "anomalies")
    if days is None:
        return analytics.nothing(request, TITLE, "anomalies")

    def fetch(ask: Ask) -> Page[Row]:
        rows = analytics.of_sender(listing.rows("anomalies", days.first, days.last), ask)
        rows = _of_kind(rows, ask.filters["kind"])
        found = ask.page(rows, ORDERS)
        return Page([_row(request, each) for each in found.items], found.next)

    table = Table(
        request, "anomalies", COLUMNS, fetch, order="-hour", filters=FILTERS,
        empty="Neither a twin nor SBD sent far more or far fewer messages than in the week before.",
    )  # fmt: skip
    context = analytics.frame(request, {"days": days})
    return respond(request, table, "relay_dashboard/analytics_anomalies.html", TITLE, context)


def _of_kind(rows: Any, kind: str) -> Any:
    if kind == "burst":
        return rows.filter(accepted__gt=F("median"))
    return rows.filter(accepted__lt=F("median")) if kind == "silence" else rows


def _row(request: HttpRequest, found: Anomaly) -> Row:
    off = abs(found.accepted - found.median)
    values = {
        "hour": f"{found.hour:%Y-%m-%d %H:%M}",
        "twin": found.twin if found.protocol == RMB else None,
        "protocol": analytics.PROTOCOLS.get(found.protocol, found.protocol),
        "kind": BURST if found.accepted > found.median else SILENCE,
        "accepted": found.accepted,
        "median": found.median,
        "deviation": found.deviation,
        "times": round(off / (SIGMA * max(found.deviation, 1)), 1),
    }
    return Row(values, analytics.twin_link(request, "twin", found.twin))

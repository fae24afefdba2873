"""Traffic between relays, as a heat map and as a table; and the traffic of SBD."""

from __future__ import annotations

from typing import Any, Final

from django.http import HttpRequest
from django.http.response import HttpResponseBase

from relay.analytics import listing, summaries
from relay.analytics.spark.protocols import SBD
from relay.analytics.summaries import Flow
from relay.dashboard import analytics, heat, spans
from relay.dashboard.figures import Kind
from relay.dashboard.pages import page
from relay.dashboard.tables import Ask, Column, Fetch, Row, Tab, Table, given, href, respond
from relay.ops.paging import Page, one_of, page_of

TITLE: Final = "Traffic between relays"

COLUMNS: Final = (
    Column("origin", "From", order="origin", hint="the relay that accepted the messages"),
    Column("final", "To", order="final", hint="the relay that delivered them"),
    Column("messages", "Messages", Kind.NUMBER, order="messages"),
    Column("bytes", "Bytes", Kind.BYTES, order="bytes", hint="of their envelopes"),
    Column("share", "Share", Kind.SHARE, hint="of all messages of these days"),
)
UNNAMED: Final = "unknown"
"""Shown for a relay whose name is missing in the rows."""
MEASURES: Final = (("messages", "Messages", Kind.NUMBER), ("bytes", "Bytes", Kind.BYTES))


@page(analytics.VIEW)
def traffic(request: HttpRequest) -> HttpResponseBase:
    """Show the heat map of some days, and its numbers."""
    days = spans.days(request, "traffic_matrix")
    if days is None:
        return analytics.nothing(request, TITLE, "matrix")
    flows = summaries.matrix(listing.rows("traffic_matrix", days.first, days.last))
    chosen = given(request, "measure")
    name, title, kind = next((each for each in MEASURES if each[0] == chosen), MEASURES[0])
    values = {
        (flow.origin or UNNAMED, flow.final or UNNAMED): getattr(flow, name) for flow in flows
    }
    table = Table(
        request, "traffic", COLUMNS, _fetch(flows), order="-messages",
        empty="No message was delivered on these days.",
    )  # fmt: skip
    context: dict[str, Any] = {
        "days": days,
        "heat": heat.draw(values, kind) if values else None,
        "label": f"{title} by relay",
        "sbd": summaries.carried(listing.rows("protocol_hour", days.first, days.last), SBD),
        "measures": [
            Tab(label, href(request, measure=each), each == name) for each, label, _ in MEASURES
        ],
    }
    context = analytics.frame(request, context)
    return respond(request, table, "relay_dashboard/analytics_traffic.html", TITLE, context)


def _fetch(flows: list[Flow]) -> Fetch:
    total = sum(flow.messages for flow in flows)

    def fetch(ask: Ask) -> Page[Row]:
        name, _ = one_of(ask.order, ("origin", "final", "messages", "bytes"))
        found = page_of(
            flows,
            lambda flow: (getattr(flow, name), f"{flow.origin}\n{flow.final}"),
            ask.order,
            ask.limit,
            ask.cursor,
        )
        return Page([_row(flow, total) for flow in found.items], found.next)

    return fetch


def _row(flow: Flow, total: int) -> Row:
    share = flow.messages / total if total else None
    origin, final = flow.origin or UNNAMED, flow.final or UNNAMED
    return Row({**flow._asdict(), "origin": origin, "final": final, "share": share})

"""The graph of a day: the twins and relays with the most connections, and groups of twins."""

from __future__ import annotations

import functools
from typing import Any, Final

from django.http import HttpRequest
from django.http.response import HttpResponseBase

from relay.access.errors import Away
from relay.analytics import graphs
from relay.analytics.graphs import Graph, Group, Node
from relay.dashboard import analytics, spans
from relay.dashboard.bars import bars
from relay.dashboard.figures import Kind
from relay.dashboard.pages import page
from relay.dashboard.tables import Ask, Column, Filter, Row, Table, respond
from relay.ops.paging import Page, one_of, page_of

TITLE: Final = "Connections"

COLUMNS: Final = (
    Column("node", "Twin or relay"),
    Column("kind", "Kind"),
    Column("targets", "Sends to", Kind.NUMBER, order="targets", hint="number of receivers"),
    Column("sources", "Gets from", Kind.NUMBER, order="sources", hint="number of senders"),
    Column("sent", "Sent", Kind.NUMBER, order="sent"),
    Column("received", "Received", Kind.NUMBER, order="received"),
    Column("attached", "Attached", Kind.NUMBER, order="attached",
           hint="for a twin: relays it used; for a relay: twins that used it"),
    Column("component", "Group", hint="lowest number of the twins in the group"),
    Column("sent_bytes", "Sent bytes", Kind.BYTES, optional=True),
    Column("received_bytes", "Received bytes", Kind.BYTES, optional=True),
)  # fmt: skip
ORDERS: Final = ("targets", "sources", "sent", "received", "attached")
FILTERS: Final = (Filter("kind", "Kind", (("twin", "twins"), ("relay", "relays"))),)


@page(analytics.VIEW)
def graph(request: HttpRequest) -> HttpResponseBase:
    """Show the graph of a day."""
    day = spans.day(request, graphs.TABLE)
    if day is None:
        return analytics.nothing(request, TITLE, "graph")
    read = functools.cache(lambda: graphs.read(day.day))

    def fetch(ask: Ask) -> Page[Row]:
        name, _ = one_of(ask.order, ORDERS)
        wanted = ask.filters["kind"]
        nodes = [each for each in read().nodes if wanted in ("", each.kind)]
        found = page_of(
            nodes,
            lambda node: (getattr(node, name), f"{node.kind} {node.node}"),
            ask.order,
            ask.limit,
            ask.cursor,
        )
        return Page([_row(request, each) for each in found.items], found.next)

    table = Table(
        request, "graph", COLUMNS, fetch, order="-targets", filters=FILTERS,
        empty="No messages on this day.",
    )  # fmt: skip
    context = analytics.frame(request, {"day": day, "most": graphs.MOST, **_groups(read)})
    return respond(request, table, "relay_dashboard/analytics_graph.html", TITLE, context)


def _groups(read: Any) -> dict[str, Any]:
    try:
        found: Graph = read()
    except Away:
        return {}  # the table shows the error
    lines = [(_label(group), float(group.twins)) for group in found.groups]
    more = found.group_count - len(found.groups)
    return {"graph": found, "bars": bars(lines, Kind.NUMBER), "more": more}


def _label(group: Group) -> str:
    return f"with twin {group.component}"


def _row(request: HttpRequest, node: Node) -> Row:
    links = {}
    if node.kind == "twin" and node.node.isdecimal():
        links = analytics.twin_link(request, "node", int(node.node))
    return Row(node._asdict(), links)

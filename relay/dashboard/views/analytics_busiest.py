"""The twins, pairs of twins, and SBD keys with the most bytes of a day."""

from __future__ import annotations

from typing import Any, Final

from django.http import HttpRequest
from django.http.response import HttpResponseBase

from relay.analytics import listing
from relay.dashboard import analytics, spans
from relay.dashboard.figures import Kind
from relay.dashboard.pages import page
from relay.dashboard.tables import Ask, Cell, Column, Fetch, Row, Table, respond_all
from relay.ops.paging import Page

TITLE: Final = "Busiest twins and SBD keys"
PPM: Final = 1_000_000

_FIGURES: Final = (
    Column("messages", "Messages", Kind.NUMBER, order="messages"),
    Column("bytes", "Bytes", Kind.BYTES, order="bytes", hint="of their envelopes"),
    Column("share", "Share", Kind.SHARE, hint="of all bytes of the day"),
)
TWINS: Final = (Column("place", "Place", order="place"), Column("twin", "Twin"), *_FIGURES)
PAIRS: Final = (
    Column("place", "Place", order="place"),
    Column("src_twin", "From"),
    Column("dst_twin", "To"),
    *_FIGURES,
)
KEYS: Final = (Column("place", "Place", order="place"), Column("key", "Key", Cell.CODE), *_FIGURES)
ORDERS: Final = {"place": "place", "messages": "messages", "bytes": "bytes"}


@page(analytics.VIEW)
def busiest(request: HttpRequest) -> HttpResponseBase:
    """Show the hundred busiest twins, pairs and keys of a day."""
    day = spans.day(request, "top_twins")
    if day is None:
        return analytics.nothing(request, TITLE, "top")
    tables = [
        Table(
            request, "top-twins", TWINS, _fetch(request, day, "top_twins", ("twin",)),
            order="place", title="Twins", prefix="t-", empty="No messages on this day.",
        ),
        Table(
            request, "hot-pairs", PAIRS,
            _fetch(request, day, "hot_pairs", ("src_twin", "dst_twin")),
            order="place", title="Pairs of twins", prefix="p-",
            empty="No messages on this day.",
        ),
        Table(
            request, "top-keys", KEYS, _fetch(request, day, "top_keys", ("key",)),
            order="place", title="SBD keys", prefix="k-",
            empty="No SBD packets on this day.",
        ),
    ]  # fmt: skip
    context = analytics.frame(request, {"day": day})
    return respond_all(request, tables, "relay_dashboard/analytics_busiest.html", TITLE, context)


def _fetch(request: HttpRequest, day: spans.Day, table: str, senders: tuple[str, ...]) -> Fetch:
    def fetch(ask: Ask) -> Page[Row]:
        found = ask.page(listing.rows(table, day.day, day.day), ORDERS)
        return Page([_row(request, each, senders) for each in found.items], found.next)

    return fetch


def _row(request: HttpRequest, found: Any, senders: tuple[str, ...]) -> Row:
    values = {
        "place": found.place,
        "messages": found.messages,
        "bytes": found.bytes,
        "share": found.share_ppm / PPM,
    }
    links: dict[str, str] = {}
    for name in senders:
        values[name] = getattr(found, name)
        if name != "key":
            links |= analytics.twin_link(request, name, values[name])
    return Row(values, links)

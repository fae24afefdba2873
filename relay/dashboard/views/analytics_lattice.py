"""One day of the lattice: calls by hour, failed or slow operations, flagged invocations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from django.http import HttpRequest
from django.http.response import HttpResponseBase

from relay.analytics import listing
from relay.analytics.spark.protocols import LATTICE_IN, LATTICE_OUT, LATTICE_SEEN
from relay.dashboard import analytics, spans
from relay.dashboard.figures import Kind
from relay.dashboard.pages import page
from relay.dashboard.tables import Ask, Cell, Column, Fetch, Filter, Row, Table, respond_all
from relay.ops.paging import Page

TITLE: Final = "Calls of the lattice"
US_PER_S: Final = 1_000_000

KINDS: Final = {LATTICE_OUT: "of twins", LATTICE_IN: "of actors", LATTICE_SEEN: "monitor"}
KIND: Final = Filter("kind", "Calls", tuple(KINDS.items()))

_OPERATION: Final = (
    Column("kind", "Calls", hint="of twins, of actors, or seen by the monitor"),
    Column("link", "Link"),
    Column("operation", "Operation", Cell.CODE),
)
_DURATIONS: Final = (
    Column("p50_s", "Median", Kind.DURATION, hint="duration of a call"),
    Column("p95_s", "95 %", Kind.DURATION, hint="95th percentile of the durations"),
    Column("max_s", "Longest", Kind.DURATION, optional=True),
)
CALLS: Final = (
    Column("hour", "Hour", Cell.LINE, order="hour", hint="UTC"),
    *_OPERATION,
    Column("contract", "Contract", optional=True),
    Column("calls", "Calls", Kind.NUMBER, order="calls"),
    Column("refused", "Refused", Kind.NUMBER, order="refused", hint="by the bridge"),
    Column("timed_out", "Timed out", Kind.NUMBER, order="timed_out"),
    Column("failed", "Failed", Kind.NUMBER, order="failed", hint="for another reason"),
    Column("flagged", "Flagged", Kind.NUMBER, order="flagged", hint="by the monitor"),
    Column("bytes", "Bytes", Kind.BYTES, order="bytes"),
    Column("answer_bytes", "Results", Kind.BYTES, optional=True),
    *_DURATIONS,
)
SLOW: Final = (
    Column("place", "Place", order="place"),
    *_OPERATION,
    Column("target", "Target", Cell.CODE),
    Column("calls", "Calls", Kind.NUMBER, order="calls"),
    Column("failed", "Failed", Kind.NUMBER, order="failed"),
    Column("reason", "Reason", hint="most frequent reason of the failures"),
    *_DURATIONS,
)
FORGED: Final = (
    Column("place", "Place", order="place"),
    Column("origin", "Origin", Cell.CODE, hint="as claimed"),
    Column("host_id", "Host", Cell.CODE, hint="as claimed"),
    Column("reason", "Reason"),
    Column("invocations", "Invocations", Kind.NUMBER, order="invocations"),
    Column("targets", "Targets", Kind.NUMBER),
    Column("first", "First", Cell.MOMENT),
    Column("last", "Last", Cell.MOMENT),
)


@page(analytics.VIEW)
def lattice(request: HttpRequest) -> HttpResponseBase:
    """Show the tables of a day."""
    day = spans.day(request, "lattice_calls")
    if day is None:
        return analytics.nothing(request, TITLE, "lattice")
    tables = [
        Table(
            request, "lattice-calls", CALLS, _fetch(day, "lattice_calls", CALLS, _of_hour),
            order="-calls", title="By hour", prefix="c-", filters=(KIND,),
            empty="No calls on this day.",
        ),
        Table(
            request, "lattice-slow", SLOW, _fetch(day, "lattice_slow", SLOW, _durations),
            order="place", title="Failed or slow", prefix="s-",
            empty="No operation failed or was slow on this day.",
        ),
        Table(
            request, "lattice-forged", FORGED, _fetch(day, "lattice_forged", FORGED, _moments),
            order="place", title="Flagged by the monitor", prefix="f-",
            empty="The monitor flagged nothing on this day.",
        ),
    ]  # fmt: skip
    context = analytics.frame(request, {"day": day})
    return respond_all(request, tables, "relay_dashboard/analytics_lattice.html", TITLE, context)


def _fetch(
    day: spans.Day,
    table: str,
    columns: tuple[Column, ...],
    more: Callable[[Any], Mapping[str, Any]],
) -> Fetch:
    orders = {each.order: each.order for each in columns if each.order}

    def fetch(ask: Ask) -> Page[Row]:
        rows = listing.rows(table, day.day, day.day)
        if kind := ask.filters.get("kind"):
            rows = rows.filter(kind=kind)
        found = ask.page(rows, orders)
        return Page([_row(each, columns, more) for each in found.items], found.next)

    return fetch


def _row(found: Any, columns: tuple[Column, ...], more: Callable[[Any], Mapping[str, Any]]) -> Row:
    values: dict[str, Any] = {each.key: getattr(found, each.key, None) for each in columns}
    values |= more(found)
    if "kind" in values:
        values["kind"] = KINDS.get(found.kind, found.kind)
    return Row(values)


def _of_hour(found: Any) -> Mapping[str, Any]:
    return {"hour": f"{found.hour:%Y-%m-%d %H:%M}", **_durations(found)}


def _durations(found: Any) -> Mapping[str, Any]:
    told = {"p50_s": found.p50_us, "p95_s": found.p95_us, "max_s": found.max_us}
    return {name: None if us is None else us / US_PER_S for name, us in told.items()}


def _moments(found: Any) -> Mapping[str, Any]:
    first, last = (
        datetime.fromtimestamp(us / US_PER_S, UTC) for us in (found.first_us, found.last_us)
    )
    return {"first": first, "last": last}

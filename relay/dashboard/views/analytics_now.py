"""Events by the minute, as the stream counts them: the hours that no job has processed yet."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

from django.db.models import Sum
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.template.response import TemplateResponse
from django.utils import timezone

from relay.analytics.models import LiveMinute, StreamState
from relay.analytics.summaries import US_PER_S
from relay.dashboard import analytics, curves
from relay.dashboard.figures import Kind
from relay.dashboard.pages import page, render
from relay.dashboard.states import State, Tone
from relay.dashboard.tables import Ask, Column, Filter, Row, Tab, Table, given, href, respond
from relay.ops.paging import Page, one_of, page_of

TITLE: Final = "Events by the minute"
CURVES: Final = "analytics-now"

SPANS: Final = {"1h": 1, "6h": 6, "24h": 24, "3d": 72}
MINUTE: Final = timedelta(minutes=1)
MOMENTS: Final = 5
KINDS: Final = ("accepted", "delivered", "queued", "dropped", "federated_out", "federated_in")
"""Events with a curve; the table contains all."""
STANDS_STILL: Final = timedelta(minutes=2)
"""Age of the stream's last report from which it counts as stopped. The stream reports several times
a minute, even without events."""

COLUMNS: Final = (
    Column("kind", "Event", order="kind"),
    Column("reason", "Reason", order="reason"),
    Column("relay", "Relay", order="relay"),
    Column("remote", "Partner relay", order="remote", hint="for federation"),
    Column("n", "Events", Kind.NUMBER, order="n"),
    Column("bytes", "Bytes", Kind.BYTES, order="bytes", hint="of their envelopes"),
    Column("mean_s", "Took", Kind.DURATION,
           hint="average time until delivery, or round-trip time of the partner relay"),
    Column("late", "Late", Kind.NUMBER, order="late", hint="delivered after more than a minute"),
)  # fmt: skip
ORDERS: Final = ("kind", "reason", "relay", "remote", "n", "bytes", "late")
FILTERS: Final = (Filter("kind", "Event", hint="such as dropped"), analytics.RELAY)
TIMED: Final = ("delivered", "federated_out")
"""Kinds of which every row has a latency; for others a mean would be meaningless."""


@page(analytics.VIEW)
def now(request: HttpRequest) -> HttpResponseBase:
    """Show curves and sums of the latest hours."""
    stream = StreamState.objects.first()
    if stream is None or stream.newest is None:
        return _nothing(request)
    chosen = given(request, "span")
    span = chosen if chosen in SPANS else "6h"
    end = stream.newest.replace(second=0, microsecond=0) + MINUTE
    begin = end - timedelta(hours=SPANS[span])
    context: dict[str, Any] = {
        "curves_id": CURVES,
        "curves": _curves(begin, end, stream.since),
        "label": "Events by the minute",
        "stream": stream,
        "state": _state(stream),
        "spans": [Tab(each, href(request, span=each), each == span) for each in SPANS],
    }
    if request.headers.get("HX-Target") == CURVES:
        return TemplateResponse(request, "relay_dashboard/analytics_minutes.html", context)

    def fetch(ask: Ask) -> Page[Row]:
        name, _ = one_of(ask.order, ORDERS)
        return page_of(
            _sums(begin, end, ask),
            lambda row: (row.values[name], " ".join(str(row.values[each]) for each in ORDERS[:4])),
            ask.order,
            ask.limit,
            ask.cursor,
        )

    table = Table(
        request, "minutes", COLUMNS, fetch, order="-n", filters=FILTERS, live=True,
        title="In these hours", empty="No events in these hours.",
    )  # fmt: skip
    context = analytics.frame(request, context)
    return respond(request, table, "relay_dashboard/analytics_now.html", TITLE, context)


def _nothing(request: HttpRequest) -> HttpResponseBase:
    lines = [
        "Jobs compute whole days. For the hours since, the stream counts events as their "
        "files arrive. Run it as a separate service beside the relay:"
    ]
    commands = ["python manage.py rmb_analytics stream"]
    how = "docs/operate/analytics-stream.md"
    found = analytics.Nothing("No events counted yet", lines, commands, how)
    context = analytics.frame(request, {"nothing": found})
    return render(request, "relay_dashboard/analytics_nothing.html", TITLE, context)


def _state(stream: StreamState) -> State:
    if timezone.now() - stream.updated_at > STANDS_STILL:
        return State("stopped", Tone.WARNING, "rmb_analytics stream is not running, or hangs")
    return State("counting", Tone.GOOD)


def _curves(begin: datetime, end: datetime, since: datetime) -> curves.Drawing | None:
    """Return the curves. Minutes before `since` were not counted: they are unknown, and not 0."""
    rows = LiveMinute.objects.filter(minute__gte=begin, minute__lt=end, kind__in=KINDS)
    minutes = (end - begin) // MINUTE
    unknown = min(max(-((begin - since) // MINUTE), 0), minutes)
    found: dict[str, list[float | None]] = {}
    for minute, kind, n in rows.values_list("minute", "kind").annotate(n=Sum("n")).order_by():
        values = found.setdefault(kind, [None] * unknown + [0.0] * (minutes - unknown))
        values[(minute - begin) // MINUTE] = n
    if not found:
        return None
    lines = [(kind.replace("_", " "), found[kind]) for kind in KINDS if kind in found]
    step = (end - begin) / (MOMENTS - 1)
    shape = "%H:%M" if minutes <= 24 * 60 else "%b %d %H:%M"
    moments = [f"{begin + step * number:{shape}}" for number in range(MOMENTS)]
    return curves.draw(lines, moments, Kind.NUMBER)


def _sums(begin: datetime, end: datetime, ask: Ask) -> list[Row]:
    rows = LiveMinute.objects.filter(minute__gte=begin, minute__lt=end)
    for name in ("kind", "relay"):
        if ask.filters[name]:
            rows = rows.filter(**{name: ask.filters[name]})
    found = (
        rows.order_by()
        .values("kind", "reason", "relay", "remote")
        .annotate(
            sum_n=Sum("n"), bytes=Sum("size_bytes"), took_us=Sum("latency_us"), sum_late=Sum("late")
        )
    )
    return [
        Row(
            {
                **{name: each[name] for name in ("kind", "relay", "remote", "bytes")},
                "reason": "" if each["reason"] == "none" else each["reason"],
                "n": each["sum_n"],
                "late": each["sum_late"],
                "mean_s": each["took_us"] / each["sum_n"] / US_PER_S
                if each["kind"] in TIMED and each["sum_n"]
                else None,
            }
        )
        for each in found
    ]

"""Charts outside of the overview: data for its script, pictures, and tables with exports."""

from __future__ import annotations

from datetime import UTC, datetime

from django.conf import settings
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase

from relay.access.errors import NotFound
from relay.dashboard import chart_svg, charts
from relay.dashboard.charts import Chart
from relay.dashboard.pages import page
from relay.dashboard.tables import Ask, Column, Filter, Row, Table, respond
from relay.history.reading import SPANS
from relay.ops.paging import Page, page_of

DEFAULT_SPAN = SPANS[0]


@page("worker.view")
def data(request: HttpRequest) -> HttpResponseBase:
    """Return the data of all charts of the overview, for its script."""
    found = charts.read(shown(), _span(request))
    return JsonResponse(charts.document(found), json_dumps_params={"separators": (",", ":")})


@page("worker.view")
def picture(request: HttpRequest, name: str) -> HttpResponseBase:
    """Return one chart as an SVG picture."""
    found = charts.read([_chart(name)], _span(request))
    width = chart_svg.WIDTHS["narrow" in request.GET]
    drawn = chart_svg.draw(found, found.charts[0], width)
    return HttpResponse(drawn, content_type="image/svg+xml")


@page("worker.view")
def table(request: HttpRequest, name: str) -> HttpResponseBase:
    """Show the numbers of one chart, the newest first; columns that are always 0 are optional."""
    chart = _chart(name)
    # Each series has its own column, even if the chart adds some up.
    found = charts.read([chart._replace(stacked=False)], _span(request))
    lines = found.charts[0].lines
    some = [line for line in lines if any(line.values)] or lines[:1]
    times = [datetime.fromtimestamp(at, UTC) for at in found.times]
    rows = [
        Row({"at": at, **{line.keys[0]: line.values[index] for line in lines}})
        for index, at in enumerate(times)
    ]

    def fetch(ask: Ask) -> Page[Row]:
        return page_of(
            rows, lambda row: (row.values["at"].timestamp(), ""), ask.order, ask.limit, ask.cursor
        )

    columns = [
        Column("at", "Time", order="at", hint="start of the step (UTC)"),
        *(
            Column(
                line.keys[0], line.label, chart.kind, optional=chart.stacked and line not in some
            )
            for line in lines
        ),
    ]
    numbers = Table(
        request, f"chart-{name}", columns, fetch, order="-at",
        filters=[Filter("span", "Span", [(each, each) for each in SPANS])],
        empty="No figures in this period.",
    )  # fmt: skip
    return respond(request, numbers, "relay_dashboard/chart_table.html", chart.title)


def shown() -> list[Chart]:
    """Return the charts of this relay."""
    return charts.shown(settings.RMB.twins.source == "tfchain")


def span_of(request: HttpRequest) -> str:
    """Return the span that a request names; the shortest if it names no known one."""
    given = request.GET.get("span", "")
    return given if given in SPANS else DEFAULT_SPAN


def _span(request: HttpRequest) -> str:
    return request.GET.get("span") or DEFAULT_SPAN


def _chart(name: str) -> Chart:
    for each in shown():
        if each.name == name:
            return each
    raise NotFound(f"there is no chart {name[:64]}")

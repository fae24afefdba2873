"""Charts apart from their page: numbers for the script, a picture, and a table to take away."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase

from relay.access.errors import NotFound
from relay.dashboard import chart_svg, charts
from relay.dashboard.charts import Chart
from relay.dashboard.pages import page
from relay.dashboard.tables import Ask, Cell, Column, Filter, Row, Table, respond
from relay.history.reading import SPANS
from relay.ops.paging import Page, page_of

DEFAULT_SPAN = SPANS[0]


@page("worker.view")
def data(request: HttpRequest) -> HttpResponseBase:
    """All charts of the overview, for its script."""
    found = charts.read(shown(), _span(request))
    return JsonResponse(charts.document(found), json_dumps_params={"separators": (",", ":")})


@page("worker.view")
def picture(request: HttpRequest, name: str) -> HttpResponseBase:
    """One chart as an SVG."""
    found = charts.read([_chart(name)], _span(request))
    width = chart_svg.WIDTHS["narrow" in request.GET]
    drawn = chart_svg.draw(found, found.charts[0], width)
    return HttpResponse(drawn, content_type="image/svg+xml", headers={"Cache-Control": "no-store"})


@page("worker.view")
def table(request: HttpRequest, name: str) -> HttpResponseBase:
    """The numbers of one chart, the newest first."""
    chart = _chart(name)

    def fetch(ask: Ask) -> Page[Row]:
        found = charts.read([chart], ask.filters["span"] or DEFAULT_SPAN)
        rows = []
        for index, at in enumerate(found.times):
            values: dict[str, Any] = {"at": datetime.fromtimestamp(at, UTC)}
            for line in found.charts[0].lines:
                values[line.keys[0]] = line.values[index]
            rows.append(Row(values))
        return page_of(
            rows, lambda row: (row.values["at"].timestamp(), ""), ask.order, ask.limit, ask.cursor
        )

    spans = Filter("span", "Span", [(each, each) for each in SPANS])
    columns = [
        Column("at", "Time", Cell.MOMENT, order="at", hint="at which the step begins"),
        *(Column(key, label, chart.kind) for key, label in chart.parts),
    ]
    numbers = Table(
        request, f"chart-{name}", columns, fetch, order="-at", filters=[spans],
        empty="No numbers in this span.",
    )  # fmt: skip
    return respond(request, numbers, "relay_dashboard/chart_table.html", chart.title)


def shown() -> list[Chart]:
    """The charts of this relay."""
    return charts.shown(settings.RMB.twins.source == "tfchain")


def span_of(request: HttpRequest) -> str:
    """The span a request is about; the shortest when it names none that is known."""
    given = request.GET.get("span", "")
    return given if given in SPANS else DEFAULT_SPAN


def _span(request: HttpRequest) -> str:
    return request.GET.get("span") or DEFAULT_SPAN


def _chart(name: str) -> Chart:
    for each in shown():
        if each.name == name:
            return each
    raise NotFound(f"there is no chart {name[:64]}")

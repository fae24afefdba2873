"""Usage of each twin in a month, as a page and as files for billing."""

from __future__ import annotations

from typing import Final

from django.http import FileResponse, HttpRequest
from django.http.response import HttpResponseBase
from django.urls import reverse

from relay.access.errors import NotFound
from relay.analytics import bills, listing, summaries
from relay.analytics.models import Usage
from relay.dashboard import analytics, spans
from relay.dashboard.figures import Kind
from relay.dashboard.pages import page
from relay.dashboard.report import FORMS as REPORTS
from relay.dashboard.tables import Action, Ask, Column, Row, Table, respond
from relay.ops.paging import Page
from relay.rest.lines import CSV, lines

TITLE: Final = "Usage"

COLUMNS: Final = (
    Column("twin", "Twin", order="twin"),
    Column("accepted", "Sent", Kind.NUMBER, order="accepted", hint="messages from the twin"),
    Column("accepted_bytes", "Sent bytes", Kind.BYTES, order="accepted_bytes"),
    Column("delivered", "Delivered", Kind.NUMBER, order="delivered",
           hint="delivered messages from the twin"),
    Column("delivered_bytes", "Delivered bytes", Kind.BYTES, order="delivered_bytes"),
    Column("dropped", "Dropped", Kind.NUMBER, order="dropped"),
    Column("session_seconds", "Connected", Kind.DURATION, order="session_seconds",
           hint="duration of all its sessions within the month"),
)  # fmt: skip
ORDERS: Final = {each.order: each.key for each in COLUMNS}
PARQUET: Final = "application/vnd.apache.parquet"


@page(analytics.VIEW)
def usage(request: HttpRequest) -> HttpResponseBase:
    """List the twins of a month; those that sent the most bytes come first."""
    month = spans.month(request, "usage")
    if month is None:
        return analytics.nothing(request, TITLE, "usage")

    def fetch(ask: Ask) -> Page[Row]:
        rows = analytics.of_twin(listing.of_month("usage", month.month), ask)
        found = ask.page(rows, ORDERS)
        return Page([_row(request, each) for each in found.items], found.next)

    files = [(label, _address(month.month, form)) for form, label in bills.FORMS.items()]
    table = Table(
        request, "usage", COLUMNS, fetch, order="-accepted_bytes", exports=files,
        filters=[analytics.TWIN],
        empty="No twin sent messages or was connected in this month.",
    )  # fmt: skip
    context = {
        "month": month,
        "total": summaries.used(listing.of_month("usage", month.month)),
        "actions": [
            Action(label, url, asks=False, download=True)
            for label, url in [
                *((f"Usage as {label}", url) for label, url in files),
                *((f"Report as {form.upper()}", _report(month.month, form)) for form in REPORTS),
            ]
        ],
    }
    context = analytics.frame(request, context)
    return respond(request, table, "relay_dashboard/analytics_usage.html", TITLE, context)


@page(analytics.VIEW)
def download(request: HttpRequest, month: str, form: str) -> HttpResponseBase:
    """Send the usage of a month as a file."""
    if month not in listing.periods("usage"):
        raise NotFound(f"the usage of {month} is not computed")
    name = f"usage-{month}.{form}"
    if form == "csv":
        return lines(bills.csv_lines(month), CSV, name)
    if form == "parquet":
        return FileResponse(
            bills.parquet(month), as_attachment=True, filename=name, content_type=PARQUET
        )
    raise NotFound(f"usage is written as {' or '.join(bills.FORMS)}")


def _address(month: str, form: str) -> str:
    return reverse("console:analytics_usage_download", args=[month, form])


def _report(month: str, form: str) -> str:
    return reverse("console:analytics_report", args=[month, form])


def _row(request: HttpRequest, found: Usage) -> Row:
    values = {each.key: getattr(found, each.key) for each in COLUMNS}
    return Row(values, analytics.twin_link(request, "twin", found.twin))

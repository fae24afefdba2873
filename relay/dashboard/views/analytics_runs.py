"""Pages of runs: the computed periods of each table, and the results of the jobs."""

from __future__ import annotations

from typing import Final

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import reverse

from relay.access.errors import NotFound
from relay.analytics import computed
from relay.analytics.models import Published, Run, RunState
from relay.analytics.spark import catalogue
from relay.analytics.spark.catalogue import JOBS
from relay.dashboard import analytics
from relay.dashboard.figures import Kind
from relay.dashboard.pages import page
from relay.dashboard.states import State, Tone
from relay.dashboard.tables import Ask, Cell, Column, Filter, Row, Table, respond, respond_all
from relay.ops.paging import Page

TITLE: Final = "Runs"

STATES: Final = {
    RunState.RUNNING: State("running", Tone.INFO),
    RunState.DONE: State("done", Tone.GOOD),
    RunState.UNCHANGED: State("nothing to do", Tone.IDLE, "all of it was up to date"),
    RunState.FAILED: State("failed", Tone.BAD),
}
COLUMNS: Final = (
    Column("began_at", "Began", Cell.MOMENT, order="began"),
    Column("job", "Job"),
    Column("state", "State", Cell.STATE),
    Column("days", "Days", Cell.LINE),
    Column("periods", "Computed", Kind.NUMBER, order="periods", hint="days, or months"),
    Column("rows", "Rows", Kind.NUMBER, order="rows", hint="rows of all tables of the job"),
    Column("took_s", "Took", Kind.DURATION),
    Column("error", "Error"),
    Column("master", "Spark at", Cell.CODE, optional=True),
    Column("name", "Run", Cell.CODE, optional=True, hint="last part of the paths of the files"),
)
ORDERS: Final = {"began": "began_at", "periods": "periods", "rows": "result_rows"}
FILTERS: Final = (
    Filter("job", "Job", [(name, name) for name in JOBS]),
    Filter("state", "State", [(each.value, STATES[each].text) for each in RunState]),
)
TABLES: Final = (
    Column("table", "Table", hint="name in `rmb_analytics sql` and REST"),
    Column("job", "Job", hint="job that computes the table"),
    Column("periods", "Computed", Kind.NUMBER, hint="days, or months"),
    Column("first", "From", Cell.LINE),
    Column("last", "To", Cell.LINE),
    Column("rows", "Rows", Kind.NUMBER),
    Column("size_bytes", "Size", Kind.BYTES, hint="of its Parquet files"),
    Column("made", "Newest", Cell.MOMENT, hint="time of the latest result"),
    Column("where", "Kept in", hint="small tables are also in the database"),
)
PUBLISHED: Final = (
    Column("table", "Table", order="table"),
    Column("period", "Day or month", Cell.LINE, order="period"),
    Column("rows", "Rows", Kind.NUMBER, order="rows"),
    Column("size_bytes", "Size", Kind.BYTES, hint="of its Parquet files"),
    Column("event_rows", "Events", Kind.NUMBER, hint="events read, including neighbouring days"),
    Column("at", "Made", Cell.MOMENT),
)


@page(analytics.VIEW)
def runs(request: HttpRequest) -> HttpResponseBase:
    """List runs, the latest first, and tables."""

    def fetch(ask: Ask) -> Page[Row]:
        found = Run.objects.all()
        if ask.filters["job"]:
            found = found.filter(job=ask.filters["job"])
        if ask.filters["state"]:
            found = found.filter(state=ask.filters["state"])
        some = ask.page(found, ORDERS)
        return Page([_row(each) for each in some.items], some.next)

    tables = [
        Table(
            request, "runs", COLUMNS, fetch, order="-began", filters=FILTERS, live=True,
            title="Runs of the jobs",
            empty="No job has run yet: `manage.py rmb_analytics run all` runs them all.",
        ),
        Table(
            request, "tables", TABLES, lambda ask: Page(_tables(), ""), title="Tables",
            prefix="t-", short=len(list(catalogue.tables())), exports=(),
        ),
    ]  # fmt: skip
    return respond_all(
        request, tables, "relay_dashboard/tables.html", TITLE, analytics.frame(request)
    )


@page(analytics.VIEW)
def run(request: HttpRequest, name: str) -> HttpResponseBase:
    """Show one run, and those of its results that are in use."""
    shown = Run.objects.filter(name=name).first()
    if shown is None:
        raise NotFound(f"there is no run {name}")

    def fetch(ask: Ask) -> Page[Row]:
        orders = {"table": "table", "period": "period", "rows": "result_rows"}
        found = ask.page(shown.published.all(), orders)
        return Page([_published(each) for each in found.items], found.next)

    table = Table(
        request, "published", PUBLISHED, fetch, order="-period", title="Results in use",
        empty="Later runs have replaced the results, or there were none.",
    )  # fmt: skip
    context = {"run": shown, "state": STATES[RunState(shown.state)], "took_s": _took_s(shown)}
    context = analytics.frame(request, context, "analytics_runs")
    title = f"{shown.job}, {_days(shown)}"
    return respond(request, table, "relay_dashboard/analytics_run.html", title, context)


def _tables() -> list[Row]:
    return [
        Row({**each._asdict(), "where": "files and database" if each.in_database else "files"})
        for each in computed.look()
    ]


def _row(found: Run) -> Row:
    values = {
        "began_at": found.began_at,
        "job": found.job,
        "state": STATES[RunState(found.state)],
        "days": _days(found),
        "periods": found.periods,
        "rows": found.result_rows,
        "took_s": _took_s(found),
        "error": found.error,
        "master": found.master,
        "name": found.name,
    }
    return Row(values, {"job": reverse("console:analytics_run", args=[found.name])})


def _days(found: Run) -> str:
    if found.first_day == found.last_day:
        return f"{found.first_day}"
    return f"{found.first_day} to {found.last_day}"


def _took_s(found: Run) -> float | None:
    return (found.ended_at - found.began_at).total_seconds() if found.ended_at else None


def _published(found: Published) -> Row:
    return Row(
        {
            "table": found.table,
            "period": found.period,
            "rows": found.result_rows,
            "size_bytes": found.size_bytes,
            "event_rows": found.event_rows,
            "at": found.published_at,
        }
    )

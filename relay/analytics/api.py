"""Analytics over REST: what is computed, how jobs ran, error budgets, usage as files."""

from __future__ import annotations

from datetime import date, datetime
from typing import Annotated, Any, Final, Literal

from django.conf import settings
from django.http import FileResponse
from ninja import Field, Query, Router, Schema

from relay.access.errors import Invalid, NotFound
from relay.analytics import bills, computed, listing, summaries
from relay.analytics.models import LiveMinute, Run, RunState
from relay.analytics.models.live import MAX_WORD_CHARS
from relay.analytics.models.results import MAX_NAME_CHARS
from relay.analytics.results_api import SPANS
from relay.rest.caller import Request
from relay.rest.lines import CSV, lines
from relay.rest.operation import get
from relay.rest.paging import page
from relay.rest.schema import Day, Page, PageQuery, Stamp

router = Router(tags=["analytics"])

PARQUET: Final = "application/vnd.apache.parquet"

JobName = Annotated[
    str, Field(max_length=64, description="A job, as `rmb_analytics run` knows it.")
]


class TableOut(Schema):
    """One table of results, and what of it is computed."""

    table: str
    job: str = Field(description="Job that computes the table.")
    in_database: bool = Field(description="Whether `/analytics/results` has it; files have all.")
    periods: int = Field(description="Days, or months, that are computed.")
    first: str | None = Field(description="The first of them.")
    last: str | None = Field(description="The last one.")
    rows: int
    size_bytes: int = Field(description="Of its files.")
    made: datetime | None = Field(description="When a result of it was last made.")


class RunOut(Schema):
    """One job, started once."""

    name: str
    job: str
    master: str = Field(description="Where Spark ran.")
    first_day: date
    last_day: date
    state: RunState
    error: str
    began_at: datetime
    ended_at: datetime | None
    periods: int = Field(description="Days or months it computed.")
    result_rows: int


class RunQuery(PageQuery):
    """Filters of the list."""

    job: JobName | None = None
    state: RunState | None = None
    order: Literal["began", "-began"] = "-began"


class EventMinuteQuery(PageQuery):
    """Filters of the list."""

    since: Stamp | None = None
    until: Stamp | None = Field(None, description="Not included.")
    kind: str | None = Field(None, max_length=MAX_WORD_CHARS)
    relay: str | None = Field(None, max_length=MAX_NAME_CHARS)
    order: Literal["minute", "-minute"] = "-minute"


class EventMinuteOut(Schema):
    """Events of one minute that have relay, kind, reason and remote in common."""

    minute: datetime = Field(description="When it begins.")
    relay: str
    kind: str
    reason: str = Field(description="`none` for what went well.")
    remote: str = Field(description="Empty: none has to do with it.")
    n: int
    size_bytes: int = Field(description="Of their envelopes.")
    latency_us: int = Field(description="Sum of those that have one.")
    late: int = Field(description="Delivered more than a minute after acceptance.")


class BudgetQuery(Schema):
    """Of which days."""

    since: Day = Field(description="The first day, UTC.")
    until: Day = Field(description="The last day.")


class MonthQuery(Schema):
    """Of which month."""

    month: str = Field(pattern=SPANS["month"], description="A month such as 2026-11.")


class BudgetOut(Schema):
    """How another relay kept to the objective (`analytics.objective_percent`)."""

    remote: str
    attempts: int
    ok: int
    failed: int
    allowed: float = Field(description="Tries that may fail by the objective.")
    left: float = Field(description="Of the error budget, 1 to 0; below it is overspent.")
    hours: int = Field(description="In which it was tried at all.")
    bad_hours: int = Field(description="In which fewer tries succeeded than the objective says.")
    worst_permille: int = Field(description="Of the tries of its worst hour.")
    worst_p95_s: float | None = Field(description="95th percentile of its slowest hour.")


@get(router, "/analytics/tables", action="analytics.view", answer=list[TableOut])
def list_analytics_tables(request: Request) -> Any:
    """Every table of results, and what of it is computed."""
    return [each._asdict() for each in computed.look()]


@get(router, "/analytics/runs", action="analytics.view", answer=Page[RunOut])
def list_analytics_runs(request: Request, query: Query[RunQuery]) -> Any:
    """How the jobs ran."""
    rows = Run.objects.all()
    if query.job is not None:
        rows = rows.filter(job=query.job)
    if query.state is not None:
        rows = rows.filter(state=query.state)
    return page(query, rows, {"began": "began_at"})


@get(router, "/analytics/minutes", action="analytics.view", answer=Page[EventMinuteOut])
def list_analytics_minutes(request: Request, query: Query[EventMinuteQuery]) -> Any:
    """What happened in the latest hours, by minute.

    As `rmb_analytics stream` counts it: rows of a minute grow while late events come. Kept for
    three days; days that are over are in the tables of the jobs.
    """
    rows = LiveMinute.objects.all()
    if query.since is not None:
        rows = rows.filter(minute__gte=query.since)
    if query.until is not None:
        rows = rows.filter(minute__lt=query.until)
    if query.kind is not None:
        rows = rows.filter(kind=query.kind)
    if query.relay is not None:
        rows = rows.filter(relay=query.relay)
    return page(query, rows, {"minute": "minute"})


@get(router, "/analytics/budgets", action="analytics.view", answer=list[BudgetOut])
def list_error_budgets(request: Request, query: Query[BudgetQuery]) -> Any:
    """How other relays kept to the objective in some days, the least budget left first."""
    if not 0 <= (query.until - query.since).days < listing.MAX_DAYS:
        raise Invalid(fields={"until": f"must be at most {listing.MAX_DAYS} days from since on"})
    rows = listing.rows("federation_slo", query.since, query.until)
    found = summaries.budgets(rows, settings.RMB.analytics.objective_percent / 100)
    return [{**each._asdict(), "failed": each.failed, "left": each.left} for each in found]


@get(
    router, "/analytics/usage/csv", action="analytics.view", answer=None,
    content=(CSV,), missing=True,
)  # fmt: skip
def get_usage_csv(request: Request, query: Query[MonthQuery]) -> Any:
    """What each twin used in a month, as CSV.

    A line for each twin, and a last one that says `all`, how many they are, and the sums.
    """
    _check(query.month)
    return lines(bills.csv_lines(query.month), CSV, f"usage-{query.month}.csv")


@get(
    router, "/analytics/usage/parquet", action="analytics.view", answer=None,
    content=(PARQUET,), missing=True,
)  # fmt: skip
def get_usage_parquet(request: Request, query: Query[MonthQuery]) -> Any:
    """What each twin used in a month, as a Parquet file; 503 where pyarrow is not installed."""
    _check(query.month)
    name = f"usage-{query.month}.parquet"
    return FileResponse(
        bills.parquet(query.month), as_attachment=True, filename=name, content_type=PARQUET
    )


def _check(month: str) -> None:
    if month not in listing.periods("usage"):
        raise NotFound(f"the usage of {month} is not computed")

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
    str, Field(max_length=64, description="Name of a job, as `rmb_analytics run` takes it.")
]


class TableOut(Schema):
    """A table of results and its computed periods."""

    table: str
    job: str = Field(description="Job that computes the table.")
    in_database: bool = Field(
        description="Whether `/analytics/results` has the table; result files exist for all tables."
    )
    periods: int = Field(description="Number of computed days or months.")
    first: str | None = Field(description="First computed day or month.")
    last: str | None = Field(description="Last computed day or month.")
    rows: int
    size_bytes: int = Field(description="Size of the result files.")
    made: datetime | None = Field(description="Time of the last result.")


class RunOut(Schema):
    """One run of a job."""

    name: str
    job: str
    master: str = Field(description="Spark master that ran the job, such as local[2].")
    first_day: date
    last_day: date
    state: RunState
    error: str
    began_at: datetime
    ended_at: datetime | None
    periods: int = Field(description="Number of days or months that the run computed.")
    result_rows: int


class RunQuery(PageQuery):
    """Filters of the list."""

    job: JobName | None = None
    state: RunState | None = None
    order: Literal["began", "-began"] = "-began"


class EventMinuteQuery(PageQuery):
    """Filters of the list."""

    since: Stamp | None = None
    until: Stamp | None = Field(None, description="End of the period, which is not included.")
    kind: str | None = Field(None, max_length=MAX_WORD_CHARS)
    relay: str | None = Field(None, max_length=MAX_NAME_CHARS)
    order: Literal["minute", "-minute"] = "-minute"


class EventMinuteOut(Schema):
    """Events of one minute with the same relay, kind, reason and remote."""

    minute: datetime = Field(description="Start of the minute.")
    relay: str
    kind: str
    reason: str = Field(description="Reason of a failure; `none` for success.")
    remote: str = Field(description="Partner relay; empty: none took part.")
    n: int
    size_bytes: int = Field(description="Bytes of the envelopes.")
    latency_us: int = Field(
        description="Sum of the latencies, in microseconds, of the events that have one."
    )
    late: int = Field(description="Messages delivered more than a minute after acceptance.")


class BudgetQuery(Schema):
    """Days of an error budget."""

    since: Day = Field(description="The first day, UTC.")
    until: Day = Field(description="The last day.")


class MonthQuery(Schema):
    """Month of a usage export."""

    month: str = Field(pattern=SPANS["month"], description="A month such as 2026-11.")


class BudgetOut(Schema):
    """A partner relay's attempts against the objective (`analytics.objective_percent`)."""

    remote: str
    attempts: int
    ok: int
    failed: int
    allowed: float = Field(description="Attempts that may fail within the objective.")
    left: float = Field(
        description="Share of the error budget that is left: 1 is all of it, below 0 is overspent."
    )
    hours: int = Field(description="Hours with at least one attempt.")
    bad_hours: int = Field(
        description="Hours in which fewer attempts succeeded than the objective requires."
    )
    worst_permille: int = Field(description="Successful attempts per thousand in the worst hour.")
    worst_p95_s: float | None = Field(
        description="95th percentile of the round trips in the slowest hour, in seconds."
    )


@get(router, "/analytics/tables", action="analytics.view", answer=list[TableOut])
def list_analytics_tables(request: Request) -> Any:
    """List the tables of results and their computed periods."""
    return [each._asdict() for each in computed.look()]


@get(router, "/analytics/runs", action="analytics.view", answer=Page[RunOut])
def list_analytics_runs(request: Request, query: Query[RunQuery]) -> Any:
    """List the runs of jobs."""
    rows = Run.objects.all()
    if query.job is not None:
        rows = rows.filter(job=query.job)
    if query.state is not None:
        rows = rows.filter(state=query.state)
    return page(query, rows, {"began": "began_at"})


@get(router, "/analytics/minutes", action="analytics.view", answer=Page[EventMinuteOut])
def list_analytics_minutes(request: Request, query: Query[EventMinuteQuery]) -> Any:
    """List the events of the last three days, counted by minute.

    `rmb_analytics stream` counts them; late events change the rows of past minutes. The tables of
    results have the days before.
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
    """List the error budgets of partner relays, the smallest remaining budget first."""
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
    """Export what each twin used in a month, as CSV.

    There is a line for each twin. The last line, `all`, has the number of twins and the sums.
    """
    _check(query.month)
    return lines(bills.csv_lines(query.month), CSV, f"usage-{query.month}.csv")


@get(
    router, "/analytics/usage/parquet", action="analytics.view", answer=None,
    content=(PARQUET,), missing=True,
)  # fmt: skip
def get_usage_parquet(request: Request, query: Query[MonthQuery]) -> Any:
    """Export what each twin used in a month, as Parquet; 503 if pyarrow is missing."""
    _check(query.month)
    name = f"usage-{query.month}.parquet"
    return FileResponse(
        bills.parquet(query.month), as_attachment=True, filename=name, content_type=PARQUET
    )


def _check(month: str) -> None:
    if month not in listing.periods("usage"):
        raise NotFound(
            f"the usage of {month} is not computed; `GET /analytics/tables` lists the "
            f"computed months"
        )

"""The history of the relay's figures over REST: the values behind the console's charts."""

from __future__ import annotations

from typing import Any, Final

from ninja import Field, Query, Router, Schema

from relay.access.errors import Invalid
from relay.history import reading
from relay.history.reading import Span
from relay.history.series import SERIES
from relay.rest.caller import Request
from relay.rest.operation import get

router = Router(tags=["history"])

MAX_SERIES: Final = 50
MAX_QUERY_CHARS: Final = 2000


class SeriesOut(Schema):
    """One series."""

    key: str
    title: str
    unit: str = Field(description="Unit of the values; empty: plain numbers.")
    kind: str = Field(description="rate, bytes, number, duration (seconds) or ratio (0 to 1).")
    roll_up: str = Field(description="How several values are combined: mean, max or last.")
    help: str


class HistoryQuery(Schema):
    """Query of a timeline."""

    series: str = Field(
        min_length=1, max_length=MAX_QUERY_CHARS, description="Keys of series, separated by commas."
    )
    span: Span = Field("1h", description="Length of the period, which ends now.")


class HistoryOut(Schema):
    """Some series over a span."""

    span: str
    step_s: int = Field(description="Seconds from one point to the next.")
    times: list[int] = Field(description="Unix seconds at which the points begin, at most 1500.")
    values: dict[str, list[float | None]] = Field(
        description="Values of each series, one for each time; null: unknown."
    )


@get(router, "/history/series", action="worker.view", answer=list[SeriesOut])
def list_history_series(request: Request) -> Any:
    """List all series."""
    return [each._asdict() for each in SERIES]


@get(router, "/history", action="worker.view", answer=HistoryOut)
def get_history(request: Request, query: Query[HistoryQuery]) -> Any:
    """Get series over the last hour, day, week or year."""
    keys = query.series.split(",")
    if len(keys) > MAX_SERIES:
        raise Invalid(fields={"series": f"at most {MAX_SERIES} at once"})
    frame = reading.read(keys, query.span)
    return {
        "span": frame.span,
        "step_s": frame.step_s,
        "times": frame.times,
        "values": frame.values,
    }

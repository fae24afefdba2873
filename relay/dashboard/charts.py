"""The charts of the overview: the series of each, and their values over a span.

`charts.js` draws the charts; without scripts, `relay.dashboard.chart_svg` draws pictures. All
charts of a page are read at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from relay.dashboard.figures import Kind
from relay.dashboard.kinds import kind_of
from relay.history import reading
from relay.history.series import BY_KEY, DROP_REASONS, drops

MAX_LINES: Final = 8
"""Maximum number of lines of one chart; if there are more, the smallest are added up."""


class Chart(NamedTuple):
    """One chart.

    Attributes:
        name: name in addresses.
        parts: (series, label) of its lines.
        stacked: whether the lines are parts of a whole, and only those that are not 0 are shown.
    """

    name: str
    title: str
    parts: tuple[tuple[str, str], ...]
    stacked: bool = False

    @property
    def kind(self) -> Kind:
        """How its values are formatted."""
        return kind_of(self.parts[0][0])

    @property
    def hint(self) -> str:
        """Description of the chart."""
        return " ".join(dict.fromkeys(BY_KEY[key].help for key, _ in self.parts[:2]))


CHARTS: Final = (
    Chart("messages", "Messages", (("messages_in", "in"), ("messages_out", "out"))),
    Chart("bytes", "Bytes", (("bytes_in", "in"), ("bytes_out", "out"))),
    Chart("sessions", "Sessions", (("sessions", "connected"),)),
    Chart(
        "waiting", "Waiting messages", (("waiting", "in queues"), ("outbox", "for partner relays"))
    ),
    Chart("commit", "Commit latency", (("commit_p50", "p50"), ("commit_p99", "p99"))),
    Chart("delivery", "Delivery latency", (("delivery_p50", "p50"), ("delivery_p99", "p99"))),
    Chart(
        "federation",
        "Messages of partner relays",
        (("federation_in", "from them"), ("federation_out", "to them")),
    ),
    Chart("success", "Federation success", (("federation_success", "attempts that succeed"),)),
    Chart("limits", "Limit hits", (("limit_hits", "windows over the limit"),)),
    Chart("chain", "Chain lag", (("chain_lag", "blocks behind"),)),
    Chart(
        "drops",
        "Drops by reason",
        tuple((drops(reason), reason.replace("_", " ")) for reason in DROP_REASONS),
        stacked=True,
    ),
)
BY_NAME: Final = {each.name: each for each in CHARTS}

Values = list[float | None]


class Line(NamedTuple):
    """One line of a chart.

    Attributes:
        keys: keys of its series, whose values are added up.
        roll_up: how several values of one step are combined.
    """

    label: str
    keys: tuple[str, ...]
    roll_up: str
    values: Values


class Data(NamedTuple):
    """A chart and its lines over a span."""

    chart: Chart
    lines: Sequence[Line]


class Reading(NamedTuple):
    """Some charts over a span.

    Attributes:
        times: unix seconds at which the steps of all lines begin.
    """

    span: str
    step_s: int
    times: list[int]
    charts: Sequence[Data]


def shown(follows_chain: bool) -> list[Chart]:
    """Return the charts to show; the chain lag is omitted if the relay follows no chain."""
    return [each for each in CHARTS if follows_chain or each.name != "chain"]


def read(charts: Iterable[Chart], span: str, now: float | None = None) -> Reading:
    """Return the values of some charts.

    Args:
        span: one of `relay.history.reading.SPANS`.

    Raises:
        Invalid: the span is unknown.
        Away: a store does not answer.
    """
    wanted = list(charts)
    frame = reading.read((key for chart in wanted for key, _ in chart.parts), span, now)
    found = [Data(chart, _lines(chart, frame.values)) for chart in wanted]
    return Reading(span, frame.step_s, frame.times, found)


def document(found: Reading) -> dict[str, Any]:
    """Return a reading as JSON for `charts.js`."""
    charts = {
        data.chart.name: {"lines": [line._asdict() for line in data.lines]} for data in found.charts
    }
    return {"step_s": found.step_s, "times": found.times, "charts": charts}


def _lines(chart: Chart, values: dict[str, Values]) -> list[Line]:
    lines = [Line(label, (key,), BY_KEY[key].roll_up, values[key]) for key, label in chart.parts]
    return _parts(lines) if chart.stacked else lines


def _parts(lines: list[Line]) -> list[Line]:
    """Return the lines that are not always 0, the largest first; the smallest are added up."""
    sums = {line.label: sum(value or 0.0 for value in line.values) for line in lines}
    some = sorted(lines, key=lambda line: -sums[line.label])
    some = [line for line in some if sums[line.label]]
    if not some:
        return [_together("none", lines)]
    if len(some) <= MAX_LINES:
        return some
    return [*some[: MAX_LINES - 1], _together("others", some[MAX_LINES - 1 :])]


def _together(label: str, lines: list[Line]) -> Line:
    values = [_sum(each) for each in zip(*(line.values for line in lines), strict=True)]
    return Line(label, tuple(key for line in lines for key in line.keys), lines[0].roll_up, values)


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None

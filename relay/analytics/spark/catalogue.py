"""Catalogue of the jobs, the tables that they compute, and the events that they read.

A job computes one or more tables, in periods of a day or a month. For a period, it may need events
from before it (a message that was accepted the evening before) or after it (a session that ends
later): `Job.span` returns what to read. This module does not import Spark, so that the web site can
use it, too.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from types import ModuleType
from typing import Final, Literal

from relay.analytics.spark.protocols import LATTICE_KINDS, RMB
from relay.analytics.spark.window import Window, next_month

_JOBS: Final = "relay.analytics.spark.jobs."


@dataclasses.dataclass(frozen=True, slots=True)
class Table:
    """One table of results.

    Attributes:
        name: name of the table, of its folder, and of its module in `relay.analytics.spark.jobs`.
        keys: columns that identify a row; the first is `period`.
        in_database: whether its rows are in the database as well, for pages and REST; large tables
            are in files only.
        renamed: columns whose name has changed: name in files of earlier releases, present name.
        added: columns that files of earlier releases lack, and their values for these rows, in SQL.
    """

    name: str
    keys: tuple[str, ...]
    in_database: bool
    renamed: tuple[tuple[str, str], ...] = ()
    added: tuple[tuple[str, str], ...] = ()

    def load(self) -> ModuleType:
        """Return its module, with TABLE, SCHEMA and transform; imports Spark."""
        return importlib.import_module(_JOBS + self.name)


@dataclasses.dataclass(frozen=True, slots=True)
class Job:
    """Tables that are computed together, from one reading of the events.

    Attributes:
        name: name on the command line.
        about: one line for `--help`.
        tables: tables that the job computes.
        grain: length of a period.
        reads_before: time before the first period whose events are read.
        reads_after: time after the last period whose events are read.
        inputs: arguments of `transform` besides the window, by name: `events`, `gaps` (losses of
            the recorders), `life_us` (maximum lifetime of messages).
        version: version of the job; raised when the same events give other results than before, so
            that these are computed again.
        of_kinds: kinds of events that all its tables use, if these are so few that they are read
            once and kept until the last table is computed; empty: each table reads the events
            itself.
    """

    name: str
    about: str
    tables: tuple[Table, ...]
    grain: Literal["day", "month"] = "day"
    reads_before: timedelta = timedelta()
    reads_after: timedelta = timedelta()
    inputs: tuple[str, ...] = ("events",)
    version: int = 1
    of_kinds: tuple[str, ...] = ()

    def periods(self, window: Window) -> list[str]:
        """Return the periods that a window touches; each is computed as a whole."""
        if self.grain == "month":
            return window.months()
        return [day.isoformat() for day in window.days()]

    def whole(self, window: Window) -> Window:
        """Return the window, extended to whole periods."""
        if self.grain == "day":
            return window
        return Window(window.first.replace(day=1), next_month(window.last) - timedelta(days=1))

    def span(self, window: Window) -> tuple[datetime, datetime]:
        """Return the time whose events are read for a window: start, and end (not included)."""
        whole = self.whole(window)
        return (
            _midnight(whole.first) - self.reads_before,
            _midnight(whole.last) + timedelta(days=1) + self.reads_after,
        )


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)


# A relay keeps a message for an hour unless its sender requests another time, and clocks of relays
# may differ: a day before and an hour after a period have all events of its messages.
_MESSAGE_BEFORE: Final = timedelta(days=1)
_MESSAGE_AFTER: Final = timedelta(hours=1)

_PROTOCOL: Final = (("protocol", f"'{RMB}'"),)
"""Protocol of files of earlier releases, which supported only one."""

JOBS: Final = {
    job.name: job
    for job in (
        Job(
            "rollup",
            "messages, bytes and latencies by hour, for each twin, pair of relays and protocol",
            (
                Table("twin_hour", ("period", "hour", "src_twin"), in_database=False),
                Table(
                    "relay_pair_hour",
                    ("period", "hour", "relay", "remote"),
                    in_database=True,
                    renamed=(("n", "attempts"),),
                ),
                Table("protocol_hour", ("period", "hour", "relay", "protocol"), in_database=True),
            ),
        ),
        Job(
            "matrix",
            "messages from each relay to each relay",
            (
                Table(
                    "traffic_matrix",
                    ("period", "origin", "final"),
                    in_database=True,
                    renamed=(("n", "messages"),),
                ),
            ),
            reads_before=_MESSAGE_BEFORE,
            reads_after=_MESSAGE_AFTER,
        ),
        Job(
            "sessions",
            "sessions, reconnect storms, and the highest number of open sessions",
            (
                Table("sessions", ("period", "uid"), in_database=False, added=_PROTOCOL),
                Table(
                    "storms",
                    ("period", "protocol", "twin", "session", "first_us"),
                    in_database=True,
                    added=_PROTOCOL,
                ),
                Table(
                    "concurrency",
                    ("period", "relay", "protocol", "hour"),
                    in_database=True,
                    added=_PROTOCOL,
                ),
            ),
            reads_before=timedelta(days=31),
            reads_after=timedelta(days=7),
            version=2,
            of_kinds=("session_open", "session_close"),
        ),
        Job(
            "federation",
            "how well partner relays answer, and their ranking by recent failures",
            (
                Table("federation_slo", ("period", "hour", "remote"), in_database=True),
                Table("federation_rank", ("period", "remote"), in_database=True),
            ),
        ),
        Job(
            "anomalies",
            "hours in which a twin, or SBD, sent far more or less than in the week before",
            (
                Table(
                    "anomalies",
                    ("period", "hour", "protocol", "twin"),
                    in_database=True,
                    renamed=(("x", "accepted"), ("med", "median"), ("mad", "deviation")),
                    added=_PROTOCOL,
                ),
            ),
            reads_before=timedelta(days=8),
            reads_after=timedelta(days=1),
        ),
        Job(
            "top",
            "the twins, pairs of twins and SBD keys with the most traffic",
            (
                Table("top_twins", ("period", "place"), in_database=True),
                Table("hot_pairs", ("period", "place"), in_database=True),
                Table("top_keys", ("period", "place"), in_database=True),
            ),
        ),
        Job(
            "usage",
            "what each twin used in a month, for the bill",
            (Table("usage", ("period", "twin"), in_database=True),),
            grain="month",
            reads_before=timedelta(days=31),
            version=2,
        ),
        Job(
            "audit",
            "what became of each message: delivered once, several times, late or never",
            (Table("audit", ("period", "relay"), in_database=True),),
            reads_before=timedelta(days=1),
            reads_after=timedelta(days=1),
            inputs=("events", "gaps", "life_us"),
            version=2,
        ),
        Job(
            "graph",
            "which twins and relays exchange messages, and the groups they form",
            (
                Table(
                    "graph_edges",
                    ("period", "link", "src", "dst"),
                    in_database=False,
                    renamed=(("n", "messages"),),
                ),
                Table("graph_nodes", ("period", "kind", "node"), in_database=False),
            ),
        ),
        Job(
            "lattice",
            "invocations of the lattice: calls by hour, what failed or was slow, forgeries, who "
            "calls whom",
            (
                Table(
                    "lattice_calls",
                    ("period", "hour", "kind", "link", "contract", "operation"),
                    in_database=True,
                ),
                Table("lattice_slow", ("period", "place"), in_database=True),
                Table("lattice_forged", ("period", "place"), in_database=True),
                Table("lattice_graph", ("period", "kind", "src", "dst"), in_database=False),
            ),
            of_kinds=LATTICE_KINDS,
        ),
    )
}
"""All jobs by name, in the order in which `run all` computes them."""


def tables() -> Iterator[Table]:
    """Yield all tables of all jobs."""
    for job in JOBS.values():
        yield from job.tables


def table(name: str) -> Table:
    """Return a table by its name.

    Raises:
        KeyError: there is no such table.
    """
    return {found.name: found for found in tables()}[name]

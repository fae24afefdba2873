"""The graph of relays and twins of a day, read from its files: it is too large for the database."""

from __future__ import annotations

from datetime import date
from typing import Any, Final, NamedTuple

from relay.access.errors import Away
from relay.analytics import ledger, queries
from relay.analytics.errors import AnalyticsError, MissingPackages
from relay.analytics.lake import Lake

MOST: Final = 1000
"""Nodes that are told, those with the most to do; the files have all."""
GROUPS: Final = 12
MEMORY: Final = "512MB"
THREADS: Final = 2
"""A page may not take the machine from the relay."""

TABLE: Final = "graph_nodes"


class Node(NamedTuple):
    """One twin or relay; see `relay.analytics.spark.jobs.graph_nodes`."""

    kind: str
    node: str
    sent: int
    sent_bytes: int
    received: int
    received_bytes: int
    targets: int
    sources: int
    attached: int
    component: int | None


class Group(NamedTuple):
    """Twins that are connected by messages, through however many others."""

    component: int
    twins: int
    sent: int


class Graph(NamedTuple):
    """A day.

    Attributes:
        nodes: at most MOST.
        groups: the largest.
        twins: of all groups.
        group_count: of all, also those that are not told.
    """

    nodes: list[Node]
    groups: list[Group]
    twins: int
    group_count: int


_NODES: Final = f"""
    SELECT {", ".join(Node._fields)} FROM {TABLE}
    ORDER BY kind, targets + sources DESC, sent + received DESC, node LIMIT {MOST}
"""
_GROUPS: Final = f"""
    SELECT component, count(*) AS twins, CAST(sum(sent) AS BIGINT) AS sent FROM {TABLE}
    WHERE component IS NOT NULL GROUP BY component ORDER BY twins DESC, component LIMIT {GROUPS}
"""
_ALL: Final = f"""
    SELECT count(component), count(DISTINCT component) FROM {TABLE}
"""


def read(day: date) -> Graph:
    """The graph of a day; empty where the day has none.

    Raises:
        Away: the packages of analytics are not here, or a file cannot be read.
    """
    lake = Lake.configured()
    files = ledger.result_files(lake, TABLE, day.isoformat(), day.isoformat())
    if not files:
        return Graph([], [], 0, 0)
    try:
        with queries.connect(lake, {TABLE: files}, memory=MEMORY, threads=THREADS) as connection:

            def ask(question: str) -> list[tuple[Any, ...]]:
                return queries.ask(connection, question).fetchall()

            ((twins, groups),) = ask(_ALL)
            return Graph(
                [Node(*row) for row in ask(_NODES)],
                [Group(*row) for row in ask(_GROUPS)],
                twins,
                groups,
            )
    except MissingPackages as error:
        raise Away(f"The graph is read from its files: {error}") from error
    except (AnalyticsError, OSError) as error:
        raise Away(f"The files of the graph cannot be read: {error}") from error

"""The graph of relays and twins of a day, read from files: it is too large for the database."""

from __future__ import annotations

from datetime import date
from typing import Any, Final, NamedTuple

from relay.access.errors import Away
from relay.analytics import ledger, queries
from relay.analytics.errors import AnalyticsError, MissingPackages
from relay.analytics.lake import Lake

MOST: Final = 1000
"""Maximum number of returned nodes: relays, then the twins with the most connections."""
GROUPS: Final = 12
MEMORY: Final = "512MB"
THREADS: Final = 2
"""Threads of DuckDB: a page must not take the machine from the relay."""

TABLE: Final = "graph_nodes"


class Node(NamedTuple):
    """A twin or relay; see `relay.analytics.spark.jobs.graph_nodes`."""

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
    """Twins that are connected by messages, directly or through other twins."""

    component: int
    twins: int
    sent: int


class Graph(NamedTuple):
    """Graph of a day.

    Attributes:
        nodes: the nodes, at most MOST.
        groups: the largest groups.
        twins: number of twins in all groups.
        group_count: number of all groups, including those that are not in `groups`.
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
    """Return the graph of a day; empty if none was computed.

    Raises:
        Away: the packages of the analytics are not installed, or a file cannot be read.
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

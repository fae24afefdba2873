"""The graph and jobs that look beyond their day: compared with SQL, and one day with many."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession

from relay.analytics.spark import schema
from relay.analytics.spark.catalogue import table
from relay.analytics.spark.jobs import audit, graph_nodes
from relay.analytics.spark.window import Window
from tests.relay.analytics import duck, lattice_rows, rows, weeks
from tests.relay.analytics.comparing import assert_equal, events
from tests.relay.analytics.rows import DAY, HOUR, SECOND

OVER_DAYS = ("sessions", "storms", "concurrency", "anomalies", "audit")
GRAPH = ("graph_edges", "graph_nodes")

NOON = rows.midnight(rows.FIRST) + 12 * HOUR
NASTY_GAPS = [
    (rows.RELAYS[0], "1", NOON, NOON + SECOND, None, "killed", 5, 60),
    (rows.RELAYS[0], "2", NOON - HOUR, NOON, 0, "pressure", None, None),
    ("elsewhere.example", "1", NOON + DAY, NOON + DAY, 7, "pressure", None, None),
    ("elsewhere.example", "2", NOON + DAY, NOON + DAY, None, "torn", None, None),
]


class Ground:
    """Events and gaps, prepared for both engines."""

    def __init__(self, spark: SparkSession, folder: Path, gaps: Sequence[Any]) -> None:
        self.events = events(spark, folder).coalesce(2).persist()
        self.gaps = spark.createDataFrame(list(gaps), schema.GAPS)
        self.duckdb = duck.connect(folder)
        self.duckdb.execute(
            "CREATE TABLE gaps (relay VARCHAR, worker VARCHAR, from_us BIGINT, to_us BIGINT, "
            "lost BIGINT, why VARCHAR, estimated BIGINT, at_most BIGINT)"
        )
        self.duckdb.executemany("INSERT INTO gaps VALUES (?, ?, ?, ?, ?, ?, ?, ?)", list(gaps))

    def made(self, name: str, window: Window) -> DataFrame:
        """Return what the job computes."""
        gaps = {"gaps": self.gaps} if name == "audit" else {}
        return table(name).load().transform(events=self.events, window=window, **gaps)

    def compare(self, name: str, window: Window) -> int:
        """Fail unless both engines agree; return the number of rows."""
        return assert_equal(self.made(name, window), self.duckdb, name, window)

    def fetch(self, query: str) -> list[tuple[Any, ...]]:
        """Return the rows of a DuckDB query; the table compared last is `by_duckdb`."""
        return self.duckdb.execute(query).fetchall()

    def close(self) -> None:
        """Release the events and the database."""
        self.events.unpersist()
        self.duckdb.close()


@pytest.fixture(scope="module")
def nasty(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    folder = tmp_path_factory.mktemp("events")
    rows.lake(folder)
    lattice_rows.write(folder)
    ground = Ground(spark, folder, NASTY_GAPS)
    yield ground
    ground.close()


@pytest.fixture(scope="module")
def long(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    folder = tmp_path_factory.mktemp("weeks")
    weeks.write(folder)
    ground = Ground(spark, folder, weeks.GAPS)
    yield ground
    ground.close()


@pytest.mark.parametrize("name", OVER_DAYS + GRAPH)
def test_both_engines_agree_on_days_of_all_sorts(nasty: Ground, name: str) -> None:
    found = nasty.compare(name, rows.WINDOW)
    assert found or name == "anomalies"


_EXPECTED = {
    "sessions": (
        "SELECT uid, opened_us, closed_us, duration_us FROM made WHERE uid < 100",
        weeks.SESSIONS,
    ),
    "storms": ("SELECT * FROM made", weeks.STORMS),
    "concurrency": (
        "SELECT period, relay, extract(hour FROM hour AT TIME ZONE 'UTC'), peak FROM made "
        f"WHERE relay IN {(weeks.TWO, weeks.THREE, weeks.FOUR)}",
        weeks.CONCURRENCY,
    ),
    "anomalies": (
        "SELECT period, extract(hour FROM hour AT TIME ZONE 'UTC'), twin, accepted, median, "
        "deviation FROM made",
        weeks.ANOMALIES,
    ),
    "audit": (
        "SELECT period, relay, late, expired, handed_over, in_flight, in_gap, unaccounted, gaps, "
        "gap_events, gap_estimate, gap_at_most, gaps_unknown FROM made WHERE relay IS NOT NULL",
        weeks.AUDIT,
    ),
}


@pytest.mark.parametrize("name", OVER_DAYS)
def test_a_day_is_what_it_should_be_alone_and_among_others(long: Ground, name: str) -> None:
    query, expected = _EXPECTED[name]
    first = Window(weeks.WINDOW.first, weeks.WINDOW.first)
    assert long.compare(name, first)
    assert long.compare(name, weeks.WINDOW)
    long.fetch("CREATE OR REPLACE TEMP TABLE made AS FROM by_duckdb")
    assert sorted(long.fetch(query)) == sorted(expected)
    columns = ", ".join(table(name).load().SCHEMA.names)
    for day in weeks.WINDOW.days():
        alone = Window(day, day)
        long.duckdb.execute(
            f"CREATE OR REPLACE TEMP TABLE alone AS SELECT {columns} FROM ({duck.query(name)})",
            {"start": alone.start_us, "end": alone.end_us},
        )
        among = f"SELECT {columns} FROM made WHERE period = '{day}'"
        assert long.fetch(f"FROM alone EXCEPT ALL {among}") == []
        assert long.fetch(f"{among} EXCEPT ALL FROM alone") == []


def test_messages_are_in_flight_for_as_long_as_queues_are_kept(long: Ground) -> None:
    day = Window(weeks.WINDOW.last, weeks.WINDOW.last)
    made = audit.transform(long.events, day, long.gaps, life_us=3 * HOUR).where("in_flight > 0")
    (row,) = made.collect()
    assert (row["relay"], row["in_flight"], row["unaccounted"]) == (weeks.ONE, 2, 0)


def test_what_becomes_of_messages_adds_up(nasty: Ground) -> None:
    window = {"start": rows.WINDOW.start_us, "end": rows.WINDOW.end_us}
    found = nasty.duckdb.execute(
        "SELECT relay IS NULL, bool_and(uids = delivered_once + duplicated + dropped - conflicting "
        "+ handed_over + in_flight + in_gap + unaccounted), sum(uids) > 0 "
        f"FROM ({duck.query('audit')}) GROUP BY ALL ORDER BY ALL",
        window,
    )
    assert found.fetchall() == [(False, True, True), (True, True, True)]


def test_a_chain_of_twins_is_one_group_however_long() -> None:
    count = 5_000
    numbers = np.random.default_rng(1).permutation(count)
    chain = numbers[numbers >= 10]
    label = graph_nodes.components(count, chain[:-1], chain[1:])
    assert label[:10].tolist() == list(range(10))
    assert set(label[10:].tolist()) == {10}

"""Each table of the jobs, compared with an independent implementation in SQL."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import duckdb
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from proto.rmb.reasons import MessageReason
from relay.analytics.spark import schema
from relay.analytics.spark.catalogue import JOBS, table
from relay.analytics.spark.jobs import twin_hour
from relay.analytics.spark.window import Window
from tests.relay.analytics import duck, lattice_rows, rows
from tests.relay.analytics.comparing import assert_equal, events
from tests.relay.analytics.rows import DAY, HOUR

TABLES = (
    *("twin_hour", "relay_pair_hour", "traffic_matrix", "federation_slo", "federation_rank"),
    *("top_twins", "hot_pairs", "top_keys", "protocol_hour", "usage"),
    *("lattice_calls", "lattice_slow", "lattice_forged", "lattice_graph"),
)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("events")
    rows.lake(folder)
    start = rows.midnight(rows.WINDOW.first)
    around = [
        # Before and after the months of the window, and sessions that reach into them.
        *rows.message(start - 40 * DAY, 801, 21),
        *rows.session(start - 50 * DAY, 802, 21, length=60 * DAY),
        *rows.session(start - 50 * DAY, 803, 21, length=None),
        *rows.session(start - 30 * DAY, 804, 21, length=None),
        *rows.session(start - 20 * DAY, 805, 22, length=50 * DAY),
        *rows.session(start - 40 * DAY, 806, 22, length=5 * DAY),
        # The first of these ended without a recorded close, in the month before.
        *rows.session(start - 30 * DAY, 811, 26, length=None, name="a"),
        *rows.session(start - 29 * DAY, 812, 26, length=HOUR, name="a"),
        # Its opening was not recorded.
        rows.session_close(start + 5 * DAY, 807, 23, length=DAY),
        rows.session_close(start + 5 * DAY, 808, 23, length=None),
        # Their worker was considered dead; one of them ended its session later.
        *rows.session(start + 2 * DAY, 809, 24, length=HOUR, reason="worker_lost"),
        *rows.session(start + 2 * DAY, 810, 25, length=HOUR, reason="worker_lost"),
        rows.session_close(start + 3 * DAY, 810, 25, length=DAY),
        # More than a hundred twins, many of them with the same number of bytes.
        *(rows.accepted(start + HOUR, 5000 + n, 500 + n, n, size=10 + n % 3) for n in range(150)),
    ]
    rows.write(folder, around, name="around")
    lattice_rows.write(folder)
    return folder


@pytest.fixture(scope="module")
def database(lake: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    with duck.connect(lake) as connection:
        yield connection


@pytest.mark.parametrize("name", TABLES)
def test_both_engines_agree_on_days_of_all_sorts(
    spark: SparkSession, lake: Path, database: duckdb.DuckDBPyConnection, name: str
) -> None:
    made = table(name).load().transform(events(spark, lake), rows.WINDOW)
    assert assert_equal(made, database, name, rows.WINDOW) > 0


@pytest.mark.parametrize(
    ("job", "name", "theme"),
    [
        ("matrix", "traffic_matrix", "late"),
        ("matrix", "traffic_matrix", "skew"),
        ("usage", "usage", "nulls"),
    ],
)
def test_a_period_needs_no_more_than_the_job_reads_and_is_the_same_alone(
    spark: SparkSession,
    lake: Path,
    database: duckdb.DuckDBPyConnection,
    job: str,
    name: str,
    theme: str,
) -> None:
    day = rows.FIRST + timedelta(days=[*rows.THEMES].index(theme))
    alone = Window(day, day)
    first, end = JOBS[job].span(alone)
    read = events(spark, lake).where(F.col("event_time") >= first)
    made = table(name).load().transform(read.where(F.col("event_time") < end), alone)
    assert assert_equal(made, database, name, alone) > 0


@pytest.mark.parametrize("name", ["traffic_matrix", "federation_rank", "usage"])
def test_periods_do_not_change_with_the_window_they_are_computed_in(
    database: duckdb.DuckDBPyConnection, name: str
) -> None:
    query = duck.query(name)

    def computed(window: Window) -> list[tuple[object, ...]]:
        parameters = {"start": window.start_us, "end": window.end_us}
        return database.execute(f"FROM ({query})", parameters).fetchall()

    job = next(job for job in JOBS.values() if table(name) in job.tables)
    windows = [Window(day, day) for day in rows.WINDOW.days()]
    if job.grain == "month":
        windows = [job.whole(windows[0]), job.whole(windows[-1])]
    assert sorted(map(repr, computed(rows.WINDOW))) == sorted(
        repr(row) for window in windows for row in computed(window)
    )


def test_an_open_session_counts_up_to_the_newest_event(spark: SparkSession, tmp_path: Path) -> None:
    start = rows.midnight(rows.FIRST)  # five days before the month ends
    rows.write(
        tmp_path,
        [
            *rows.session(start, 1, 31, length=None),
            *rows.session(start, 2, 32, length=HOUR, reason="worker_lost"),
            *rows.session(start, 3, 33, length=HOUR, reason="worker_lost"),
            rows.session_close(start + 2 * HOUR, 3, 33, length=2 * HOUR),
            rows.accepted(start + 7 * HOUR, 4, 34),
            # Another relay has no more events.
            *rows.session(start, 5, 35, length=None, relay=rows.RELAYS[1]),
            rows.accepted(start + 3 * HOUR, 6, 34, relay=rows.RELAYS[1]),
            # The first session of a name ended before the second one; its close is lost.
            *rows.session(start, 7, 36, length=None, name="a"),
            *rows.session(start + 2 * HOUR, 8, 36, length=HOUR, name="a"),
            # A session of another name does not end it.
            *rows.session(start, 9, 37, length=None, name="a"),
            *rows.session(start + 2 * HOUR, 10, 37, length=HOUR, name="b"),
        ],
    )
    read = events(spark, tmp_path)
    usage = table("usage").load()
    both = Window(rows.FIRST, rows.FIRST + timedelta(days=30))
    for window in (Window(rows.FIRST, rows.FIRST), both):
        seconds = {
            (row["period"], row["twin"]): row["session_seconds"]
            for row in usage.transform(read, window).collect()
        }
        hours = {twin: seconds["2026-03", twin] / 3600 for twin in range(31, 38) if twin != 34}
        assert hours == {31: 7, 32: 1, 33: 2, 35: 3, 36: 3, 37: 8}
        assert seconds.get(("2026-04", 31), 0) == 0, "no event tells that it was open"


def test_of_nothing_comes_nothing(spark: SparkSession) -> None:
    nothing = spark.createDataFrame([], schema.READ)
    made = table("top_twins").load().transform(nothing, rows.WINDOW)  # divides by the sum of bytes
    assert made.count() == 0


def test_each_reason_of_a_message_has_its_column() -> None:
    assert {*twin_hour.REASONS} == {reason.value for reason in MessageReason}

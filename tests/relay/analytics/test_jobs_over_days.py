"""The jobs that look beyond their day, and the graph: against SQL, and one day against many."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from relay.analytics.spark import schema
from relay.analytics.spark.catalogue import table
from relay.analytics.spark.window import Window
from tests.relay.analytics import duck, rows
from tests.relay.analytics.comparing import assert_equal, events
from tests.relay.analytics.rows import DAY, HOUR, SECOND

TABLES = (
    *("sessions", "storms", "concurrency", "anomalies", "audit"),
    *("graph_edges", "graph_nodes"),
)

Gap = tuple[str, str, int, int, int | None, str]


def gaps_of(spark: SparkSession, found: Iterable[Gap]) -> DataFrame:
    return spark.createDataFrame(list(found), schema.GAPS)


def compute(
    spark: SparkSession, folder: Path, name: str, window: Window, gaps: list[Gap]
) -> DataFrame:
    arguments = [events(spark, folder), window]
    if name == "audit":
        arguments.append(gaps_of(spark, gaps))
    return table(name).load().transform(*arguments)


def compare(spark: SparkSession, folder: Path, name: str, window: Window, gaps: list[Gap]) -> int:
    with duck.connect(folder) as connection:
        connection.execute(
            "CREATE TABLE gaps (relay VARCHAR, worker VARCHAR, from_us BIGINT, to_us BIGINT, "
            "lost BIGINT, why VARCHAR)"
        )
        if gaps:
            connection.executemany("INSERT INTO gaps VALUES (?, ?, ?, ?, ?, ?)", gaps)
        return assert_equal(compute(spark, folder, name, window, gaps), connection, name, window)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("events")
    rows.lake(folder)
    return folder


@pytest.mark.parametrize("name", TABLES)
def test_both_engines_agree_on_days_of_all_sorts(
    spark: SparkSession, lake: Path, name: str
) -> None:
    noon = rows.midnight(rows.FIRST) + 12 * HOUR
    gaps = [
        (rows.RELAYS[0], "1", noon, noon + SECOND, None, "killed"),
        (rows.RELAYS[0], "2", noon - HOUR, noon, 0, "pressure"),
        ("elsewhere.example", "1", noon + DAY, noon + DAY, 7, "pressure"),
    ]
    compare(spark, lake, name, rows.WINDOW, gaps)

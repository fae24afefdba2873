"""Each table of the jobs, against an independent implementation in SQL."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from relay.analytics.spark.catalogue import table
from tests.relay.analytics import duck, rows
from tests.relay.analytics.comparing import assert_equal, events

TABLES = (
    *("twin_hour", "relay_pair_hour", "traffic_matrix", "federation_slo", "federation_rank"),
    *("top_twins", "hot_pairs", "usage"),
)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("events")
    rows.lake(folder)
    return folder


@pytest.mark.parametrize("name", TABLES)
def test_both_engines_agree_on_days_of_all_sorts(
    spark: SparkSession, lake: Path, name: str
) -> None:
    made = table(name).load().transform(events(spark, lake), rows.WINDOW)
    with duck.connect(lake) as connection:
        assert assert_equal(made, connection, name, rows.WINDOW) > 0

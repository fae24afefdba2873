"""Comparison, row by row, of what a job computes in Spark with what SQL computes in DuckDB."""

from __future__ import annotations

from pathlib import Path

import duckdb
from pyspark.sql import DataFrame, SparkSession

from relay.analytics.spark import schema
from relay.analytics.spark.catalogue import table
from relay.analytics.spark.window import Window
from tests.relay.analytics import duck


def events(spark: SparkSession, folder: Path) -> DataFrame:
    """Return the input of a job: all rows of a lake."""
    return spark.read.schema(schema.READ).parquet(str(folder))


def assert_equal(made: DataFrame, connection: duckdb.DuckDBPyConnection, name: str,
                 window: Window) -> int:  # fmt: skip
    """Fail unless DuckDB computes the same rows, each the same number of times.

    Args:
        made: Result of the job.
        connection: Connection from `duck.connect`.
        name: Name of the table.
        window: Window that was computed.

    Returns:
        The number of rows.
    """
    module = table(name).load()
    assert [(f.name, f.dataType) for f in made.schema] == [
        (f.name, f.dataType) for f in module.SCHEMA
    ]
    columns = ", ".join(made.columns)
    made_by_spark = made.toArrow()
    connection.execute(
        f"CREATE OR REPLACE TEMP TABLE by_duckdb AS SELECT {columns} FROM ({duck.query(name)})",
        {"start": window.start_us, "end": window.end_us},
    )
    connection.register("by_spark", made_by_spark)
    for one, other in (("by_spark", "by_duckdb"), ("by_duckdb", "by_spark")):
        only = connection.execute(
            f"SELECT {columns} FROM {one} EXCEPT ALL SELECT {columns} FROM {other} LIMIT 5"
        ).fetchall()
        assert not only, f"{name}: {one} has what {other} has not: {only}"
    return made_by_spark.num_rows

"""Compare what a job makes in Spark with what SQL makes in DuckDB, row by row."""

from __future__ import annotations

from pathlib import Path

import duckdb
from pyspark.sql import DataFrame, SparkSession

from relay.analytics.spark import schema
from relay.analytics.spark.catalogue import table
from relay.analytics.spark.window import Window
from tests.relay.analytics import duck


def events(spark: SparkSession, folder: Path) -> DataFrame:
    """What a job is given: all rows of a lake."""
    return spark.read.schema(schema.READ).parquet(str(folder))


def assert_equal(made: DataFrame, connection: duckdb.DuckDBPyConnection, name: str,
                 window: Window) -> int:  # fmt: skip
    """Fail unless DuckDB makes the same rows, each as often.

    Args:
        made: by the job.
        connection: of `duck.connect`.
        name: of the table.
        window: what was computed.

    Returns:
        How many rows there are.
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

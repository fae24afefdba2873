"""Session for `relay.analytics.spark.classes`: it runs jobs on a few synthetic events.

It runs in a separate process, since Java writes the archive when it ends:

    python -m relay.analytics.spark.learning FOLDER ARCHIVE JOB...
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from datetime import date
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from relay.analytics.spark import classes, schema
from relay.analytics.spark.catalogue import JOBS
from relay.analytics.spark.session import open_session
from relay.analytics.spark.window import Window

END_S: Final = 300.0
"""Maximum seconds in which Java writes the archive."""

_DAY: Final = date(2026, 1, 1)


def learn(folder: Path, draft: Path, jobs: Iterable[str]) -> None:
    """Run the jobs in a session that writes an archive when it ends."""
    wanted = [JOBS[name] for name in jobs]
    session = open_session(
        "local[2]",
        folder / "cache",
        cores=2,
        driver_memory="1g",
        settings={classes.OPTIONS: f'-XX:TieredStopAtLevel=1 -XX:ArchiveClassesAtExit="{draft}"'},
    )
    if wanted:
        _events(session).write.partitionBy("date", "hour").parquet(str(folder / "events"))
    for job in wanted:
        read = session.read.schema(schema.READ).parquet(str(folder / "events"))
        gaps = session.createDataFrame([], schema.GAPS)
        inputs = {"events": read, "gaps": gaps, "life_us": 0}
        for table in job.tables:
            module = table.load()
            frame = module.transform(
                window=Window(_DAY, _DAY), **{name: inputs[name] for name in job.inputs}
            )
            divided = frame.withColumn("day", frame["period"]).hint("rebalance", "day")
            divided.write.partitionBy("day").parquet(str(folder / "results" / table.name))
    java = session.sparkContext._gateway.proc  # type: ignore[union-attr]
    session.stop()
    java.stdin.close()
    java.wait(END_S)


def _events(session: SparkSession) -> DataFrame:
    """Return events of all kinds within an hour."""
    kinds = ", ".join(f"'{kind}'" for kind in schema.KINDS)
    return session.range(2_000).selectExpr(
        f"timestamp_micros({Window(_DAY, _DAY).start_us} + id * 1000000) AS event_time",
        "'a.example' AS relay",
        f"element_at(array({kinds}), 1 + cast(id % {len(schema.KINDS)} AS int)) AS kind",
        "id % 20 AS src_twin",
        "id % 7 AS dst_twin",
        "'' AS src_session",
        "id AS size_bytes",
        "id * 100 AS latency_us",
        "'none' AS reason",
        "if(id % 3 = 0, 'b.example', NULL) AS remote",
        "id div 10 AS uid",
        f"'{_DAY}' AS date",
        "0 AS hour",
    )


if __name__ == "__main__":
    learn(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])

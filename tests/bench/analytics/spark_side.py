"""Run jobs with Spark: `python -m tests.bench.analytics.spark_side MASTER LAKE CACHE MEMORY`.

The process has one session and ends with its standard input. Each line `JOB OUT` starts a job, and
is answered by a line with the job's seconds; so the session is warm after the first job.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from relay.analytics import packaging
from relay.analytics.spark import schema
from relay.analytics.spark.catalogue import JOBS, Job
from relay.analytics.spark.session import open_session
from tests.bench.analytics.events import WINDOW

SETTINGS = {
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000000",
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    "spark.executor.memory": "2g",
    "spark.executor.cores": "2",
}


def main(master: str, lake: Path, cache: Path, memory: str) -> None:
    """Run jobs until standard input ends."""
    local = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    session = open_session(master, cache, cores=4, driver_memory=memory, settings=SETTINGS | local)
    session.sparkContext.addPyFile(str(packaging.package(cache)))
    print("ready", flush=True)
    for line in sys.stdin:
        name, out = line.split()
        began_s = time.perf_counter()
        _compute(session, lake, JOBS[name], Path(out))
        print(time.perf_counter() - began_s, flush=True)
    session.stop()


def _compute(session: SparkSession, lake: Path, job: Job, out: Path) -> None:
    """Compute a job as `relay.analytics.runner` does, without its ledger."""
    files = sorted(str(path) for path in lake.rglob("*.parquet"))
    reader = session.read.schema(schema.READ).option("basePath", str(lake / "events"))
    inputs: dict[str, DataFrame] = {"events": reader.parquet(*files)}
    if job.of_kinds:
        inputs["events"] = inputs["events"].where(F.col("kind").isin(*job.of_kinds)).persist()
    if "gaps" in job.inputs:
        inputs["gaps"] = session.createDataFrame([], schema.GAPS)
    for table in job.tables:
        module = table.load()
        frame: DataFrame = module.transform(window=WINDOW, **inputs)
        divided = frame.select(*module.SCHEMA.names).withColumn("day", frame["period"])
        divided = divided.hint("rebalance", "day")
        divided.write.mode("overwrite").partitionBy("day").parquet(str(out / table.name))
    inputs["events"].unpersist()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4])

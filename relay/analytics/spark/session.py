"""A Spark session with the settings of the jobs: UTC, on loopback if local, little output."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from relay.analytics.spark import classes, java, signals

ON_LOOPBACK: Final = ("local", "spark://127.0.0.1:", "spark://localhost:")

PARTITIONS_PER_CORE: Final = 4
"""Partitions of a shuffle, for each core. Values from 2 to 8 made no difference when measured; 200
partitions for 4 cores cost a fifth of the time."""


FEW_PARTITIONS: Final = 2
"""Partitions of a shuffle of few events."""

_QUICK_JAVA: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


def _not_of_py4j(record: logging.LogRecord) -> bool:
    """Return whether a log record is not from py4j.

    py4j logs traces to the root logger when Java has ended or a call is interrupted; the errors
    that it raises have the same information.
    """
    return "py4j" not in Path(record.pathname).parts


def open_session(
    master: str,
    cache: Path,
    *,
    name: str = "rmb_analytics",
    cores: int | None = None,
    driver_memory: str = "2g",
    small: bool = False,
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return a new session, or the existing one of this process.

    Args:
        master: `local[*]`, `local[4]`, `spark://host:port`, `yarn`, `k8s://...`.
        cache: private folder for Spark's own files.
        name: name of the application in Spark's pages.
        cores: cores of all executors together, for the number of partitions; None: those of this
            machine.
        driver_memory: heap of the driver, which for `local` does all the work.
        small: whether few events are computed, so that Java should compile quickly rather than
            well.
        settings: further settings of Spark, which override the defaults.

    Raises:
        JavaError: there is no Java that runs Spark.
    """
    # Otherwise Spark starts `python3` from the PATH, which may lack pyarrow.
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # executors may have another
    chosen = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(PARTITIONS_PER_CORE * (cores or os.cpu_count() or 1)),
        "spark.sql.warehouse.dir": str(cache / "warehouse"),
        "spark.local.dir": str(cache / "spark"),
        "spark.driver.memory": driver_memory,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.parquet.compression.codec": "zstd",
        # Joins with at most this much on one side in each task use a hash map instead of sorting.
        "spark.sql.adaptive.maxShuffledHashJoinLocalMapThreshold": "64m",
        # Spark's default, INT96, has no time zone, so other readers would misread the time.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    }
    java_options = classes.options(classes.path())
    if small:
        java_options += _QUICK_JAVA
        chosen["spark.sql.shuffle.partitions"] = str(FEW_PARTITIONS)
    if java_options:
        chosen[classes.OPTIONS] = " ".join(java_options)
    if master.startswith(ON_LOOPBACK):
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        chosen |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    conf = SparkConf().setMaster(master).setAppName(name)
    conf.setAll(list((chosen | dict(settings or {})).items()))
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # it raises what it logs
    logging.getLogger().addFilter(_not_of_py4j)
    with _environment(java.driver_home(cache)), signals.deferred():
        # If PySpark is interrupted here, it leaves a Java process that waits forever.
        SparkContext._ensure_initialized(conf=conf)
    with signals.kept(signal.SIGINT):  # PySpark's handler would call Java inside another call
        SparkContext.getOrCreate(conf)
    session = SparkSession.builder.config(conf=conf).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


@contextlib.contextmanager
def _environment(java_home: str) -> Iterator[None]:
    """Set environment variables for processes started in the block, and restore them afterwards.

    So the next session chooses its own Java. In the locale C, Java could not open files with names
    beyond ASCII.
    """
    ours = {"JAVA_HOME": java_home, "LC_ALL": "C.UTF-8"}
    before = {name: os.environ.get(name) for name in ours}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value

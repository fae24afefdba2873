"""A Spark session as the jobs need it: UTC, on loopback where it is local, quiet."""

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
"""Of a shuffle; between 2 and 8 no difference was measured, 200 for 4 cores cost a fifth."""


FEW_PARTITIONS: Final = 2
"""Of a shuffle of few events."""

_QUICK_JAVA: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


def _not_of_py4j(record: logging.LogRecord) -> bool:
    """Its traces of a Java that is gone, or of a call that was interrupted, for which it takes the
    root logger; what it raises tells it too."""
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
    """A new session, or the one of this process.

    Args:
        master: `local[*]`, `local[4]`, `spark://host:port`, `yarn`, `k8s://...`.
        cache: a folder of ours for Spark's own files.
        name: what Spark's pages call it.
        cores: of all executors together, for the number of partitions; None: those of this machine.
        driver_memory: heap of the driver, which for `local` does all the work.
        small: whether few events are computed, for which Java compiles quickly rather than well.
        settings: more of Spark's own, which go before ours.

    Raises:
        JavaError: there is no Java that runs Spark.
    """
    # Spark starts `python3` of the path otherwise, which may lack pyarrow.
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # of executors, which may be elsewhere
    chosen = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(PARTITIONS_PER_CORE * (cores or os.cpu_count() or 1)),
        "spark.sql.warehouse.dir": str(cache / "warehouse"),
        "spark.local.dir": str(cache / "spark"),
        "spark.driver.memory": driver_memory,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.parquet.compression.codec": "zstd",
        # Joins whose one side is so small in each task need no sorting; never one that is larger.
        "spark.sql.adaptive.maxShuffledHashJoinLocalMapThreshold": "64m",
        # Its own INT96 knows no time zone, and others read a time of nowhere.
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
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # all that it raises it tells of as well
    logging.getLogger().addFilter(_not_of_py4j)
    with _environment(java.driver_home(cache)), signals.deferred():
        # Interrupted in it, PySpark would leave a Java behind that waits for ever.
        SparkContext._ensure_initialized(conf=conf)
    with signals.kept(signal.SIGINT):  # PySpark takes it, to ask Java in the middle of a call
        SparkContext.getOrCreate(conf)
    session = SparkSession.builder.config(conf=conf).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


@contextlib.contextmanager
def _environment(java_home: str) -> Iterator[None]:
    """Of what is started inside; the next session looks for its Java anew.

    In the locale C Java could not name a file beyond ASCII.
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

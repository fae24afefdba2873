"""Settings that reduce Spark's own work, for tests that are about the outcome of a job.

Queries of tests end before generated code, or a better compiler of Java, would pay off.
"""

from __future__ import annotations

from typing import Final

JAVA_OPTIONS: Final = "JAVA_TOOL_OPTIONS"
"""Variable that every Java reads: also the one that starts Spark's, and those of a cluster."""

JAVA: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m"
"""Options of Java: a session of tests takes 27 s of processor time, instead of 72. The cache of
compiled code is smaller by default in this mode, and when it is full nothing more is compiled."""

INTERPRETED: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "2",
}

SETTING: Final = ",".join(f"{name}={value}" for name, value in INTERPRETED.items())
"""The same settings as a value of `analytics.spark`."""

"""What lets Spark do little work of its own, where a test asks what becomes of a job.

Queries of tests end before generated code, or a better compiler of Java, would be worth its work.
"""

from __future__ import annotations

from typing import Final

JAVA_OPTIONS: Final = "JAVA_TOOL_OPTIONS"
"""The variable that every Java reads: also the one that starts Spark's, and those of a cluster."""

JAVA: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m"
"""A session of tests takes 27 s of processor time in place of 72. Room for what is compiled is less
in this mode, and once it is full nothing more is."""

INTERPRETED: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "2",
}

SETTING: Final = ",".join(f"{name}={value}" for name, value in INTERPRETED.items())
"""As `analytics.spark`."""

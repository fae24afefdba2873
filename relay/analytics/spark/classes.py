"""Archive of Spark's classes for Java, which halves the start time of Spark.

Java reads, verifies and links about 15,000 classes before Spark does anything. With an archive
(CDS, JEP 350), it maps them into memory instead. The archive is created once for an installation,
by a session that does what the jobs do. Java checks whether the archive matches its build and the
files of Spark, and ignores it otherwise.

    python -m relay.analytics.spark.classes        creates the archive unless it exists

Drivers use it (`options`). Executors on other machines do not, because they run longer.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import pyspark

LEARNED: Final = ("rollup", "sessions", "anomalies", "audit")
"""Jobs that run to create the archive; together they use the classes that any of the jobs uses."""

OPTIONS: Final = "spark.driver.defaultJavaOptions"
"""Setting of Spark whose Java options come before those of an operator."""


class ArchiveError(Exception):
    """The archive could not be created."""


def path() -> Path:
    """Return the path of the archive, in the Python environment that has PySpark."""
    return Path(sys.prefix) / "var" / f"spark-{pyspark.__version__}.jsa"


def options(archive: Path) -> list[str]:
    """Return the Java options that use the archive; none if it does not exist."""
    return [f'-XX:SharedArchiveFile="{archive}"'] if archive.is_file() else []


def make(archive: Path, jobs: Iterable[str] = LEARNED) -> None:
    """Create or replace the archive, which takes half a minute.

    Args:
        archive: path of the archive.
        jobs: jobs to run for it.

    Raises:
        ArchiveError: it could not be created; an existing archive stays.
    """
    beside = archive.with_name(f"{archive.name}.{os.getpid()}")
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
        beside.touch()
    except OSError as error:
        raise ArchiveError(f"{archive.parent}: {error.strerror or error}") from None
    try:
        with tempfile.TemporaryDirectory(prefix="rmb-spark-") as folder:
            done = subprocess.run(
                [
                    *(sys.executable, "-m", "relay.analytics.spark.learning"),
                    *(folder, str(beside), *jobs),
                ],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,  # Java lists each class that it skips
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
            )
        if done.returncode or not beside.stat().st_size:
            said = done.stderr.strip().splitlines() or ["Java wrote nothing"]
            raise ArchiveError(f"no archive of Spark's classes: {said[-1]}")
        beside.replace(archive)
    finally:
        beside.unlink(missing_ok=True)


if __name__ == "__main__":
    if path().is_file():
        sys.exit()
    print("Keeping Spark's classes for quicker starts", flush=True)
    try:
        make(path())
    except ArchiveError as error:
        sys.exit(str(error))

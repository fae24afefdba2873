"""Spark's classes as Java keeps them for itself: with them its start takes half the time.

Java reads, checks and links some 15,000 classes before Spark has done anything. An archive of them
(CDS, JEP 350) is mapped into memory instead. It is made once for an installation, by a session that
does what the jobs do; Java looks whether it fits (its own build, the files of Spark) and goes on
without it where it does not.

    python -m relay.analytics.spark.classes        makes it unless it is there

Drivers use it (`options`), executors on other machines do not: they live longer.
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
"""Jobs that it is made of: together they use what any of them does."""

OPTIONS: Final = "spark.driver.defaultJavaOptions"
"""Goes before the options of an operator."""


class ArchiveError(Exception):
    """The archive could not be made."""


def path() -> Path:
    """Where it is: with the packages, whose versions it belongs to."""
    return Path(sys.prefix) / "var" / f"spark-{pyspark.__version__}.jsa"


def options(archive: Path) -> list[str]:
    """Java's options to use it; none where there is no archive."""
    return [f'-XX:SharedArchiveFile="{archive}"'] if archive.is_file() else []


def make(archive: Path, jobs: Iterable[str] = LEARNED) -> None:
    """Make it, or make it anew; takes half a minute.

    Args:
        archive: where to.
        jobs: what to learn from.

    Raises:
        ArchiveError: it did not work; what there was stays.
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
                stdout=subprocess.DEVNULL,  # Java tells of each class it leaves out
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

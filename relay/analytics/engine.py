"""The Spark session of this installation, opened when it is first needed."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import subprocess
import sys
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from django.conf import settings

from relay.analytics import footers, packaging, plain_paths
from relay.analytics.errors import AnalyticsError, NoEngine
from relay.analytics.gaps import Gap
from relay.analytics.lake import Lake, LakeFile
from relay.analytics.scratch import Scratch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SETTINGS: Final = {
    # Files are named one by one. By default, Spark starts a job to list more than 32 paths.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000000",
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}


_RAISED: Final = re.compile(
    r"^Traceback \(most recent call last\):\n(?:[ \t].*\n)+(\S.*)", re.MULTILINE
)
"""Message of a Python error, after its traceback."""

FEW_ROWS: Final = 3_000_000
"""Maximum number of events for a session with quick start settings. A run of so few events spends
most of its time on the start of Java and on opening files, as measured with 1 million."""

LOG: Final = "spark.log"
"""File in the cache folder for the output of Java, which would garble the progress display."""

MAX_LOG_BYTES: Final = 1024 * 1024

ENDING_S: Final = 5.0
"""Seconds to wait for the end of the Java process after it stopped answering."""


class Engine:
    """Spark, as configured for this installation.

    Attributes:
        master: the Spark master.
    """

    def __init__(
        self,
        lake: Lake,
        master: str = "",
        *,
        session: SparkSession | None = None,
        span: tuple[datetime, datetime] | None = None,
    ) -> None:
        """
        Args:
            lake: lake that has the events.
            master: the Spark master; empty for the configured one.
            session: session that is open already.
            span: time whose events are read, to start Spark with quicker settings if they are few;
                None: usual settings.
        """
        self.master = master or settings.RMB.analytics.master
        self._lake = lake
        self._session = session
        self._ours = session is None
        self._span = span
        self._small = False
        self._scratch: Scratch | None = None

    @property
    def session(self) -> SparkSession:
        """The Spark session; opened at the first use.

        Raises:
            NoEngine: Spark does not start; the text says why.
        """
        return self.open()

    def open(self) -> SparkSession:
        """Return the session, and open it if it is not open.

        Raises:
            NoEngine: Spark does not start; the text says why.
        """
        if self._session is None:
            self._session = self._open()
        return self._session

    @property
    def is_open(self) -> bool:
        """Whether the session is open; does not open it."""
        return self._session is not None

    def close(self) -> None:
        """Stop Spark, unless the caller passed the session. The next use opens another session."""
        if self._session is not None and self._ours:
            _stop(self._session)
            self._session = None
        if self._scratch is not None:
            self._scratch.close()
            self._scratch = None

    def ended(self) -> str:
        """Return in one line how the Java process ended or was killed; empty while it runs."""
        if self._session is None or not self._ours:
            return ""
        code = _exit_code()
        if code is None:
            return ""
        how = f"was killed (signal {-code})" if code < 0 else f"ended (exit code {code})"
        return f"the Java of Spark {how}; is there enough memory? {self._lake.cache / LOG} has more"

    def events(self, files: Collection[LakeFile]) -> DataFrame:
        """Return the rows of these files, with the schema `relay.analytics.spark.schema.READ`."""
        from relay.analytics.spark.schema import READ

        session = self.session
        folder = self._lake.events
        paths = [file.path for file in files]
        if self._small and self._scratch is not None:
            from relay.analytics import gathering  # imports Spark

            folder = self._scratch.path / "events"
            paths = gathering.gather(files, folder)
        if not paths:
            return session.createDataFrame([], READ)
        reader = session.read.schema(READ).option("basePath", self.path(folder))
        return reader.parquet(*map(self.path, paths))

    def path(self, path: Path) -> str:
        """Return a path of the lake in the form that Spark accepts."""
        return str(plain_paths.plain(self._lake.root) / path.relative_to(self._lake.root))

    def in_our_words(self, text: str) -> str:
        """Return a text of Spark with the path of the lake as configured."""
        return text.replace(str(plain_paths.plain(self._lake.root)), str(self._lake.root))

    def gaps(self, lost: Sequence[Gap]) -> DataFrame:
        """Return gaps as a frame with the schema `relay.analytics.spark.schema.GAPS`."""
        import pyarrow as pa
        from pyspark.sql.pandas.types import to_arrow_schema

        from relay.analytics.spark.schema import GAPS

        # Through Arrow: for a list of rows, Spark would start a Python worker.
        rows = [
            {name: value for name, value in dataclasses.asdict(gap).items() if name in GAPS.names}
            | {"why": str(gap.why)}
            for gap in lost
        ]
        return self.session.createDataFrame(pa.Table.from_pylist(rows, to_arrow_schema(GAPS)), GAPS)

    def _open(self) -> SparkSession:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        from relay.analytics.spark.java import JavaError
        from relay.analytics.spark.session import ON_LOOPBACK, open_session

        if not self.master.startswith(ON_LOOPBACK) and not plain_paths.is_plain(self._lake.root):
            raise NoEngine(
                f"a cluster ({self.master}) cannot read {self._lake.root}: give analytics.dir a "
                "path of nothing but letters A-Z, digits and . _ - /"
            )
        chosen = settings.RMB.analytics
        more = dict(each.split("=", 1) for each in chosen.spark)
        self._scratch = Scratch(self._lake.cache / "spark")
        self._small = self._reads_little()
        ours = _SETTINGS | {"spark.local.dir": self.path(self._scratch.path)}
        log = self._lake.cache / LOG
        try:
            with _output_into(log):
                session = open_session(
                    self.master,
                    Path(self.path(self._lake.cache)),
                    cores=chosen.cores or None,
                    driver_memory=chosen.driver_memory,
                    small=self._small,
                    settings=ours | {key.strip(): its.strip() for key, its in more.items()},
                )
        except JavaError as error:
            raise NoEngine(str(error)) from None
        except (Py4JError, PySparkException) as error:
            raise NoEngine(
                f"Spark does not start at {self.master}: {first_line(error)} (more in {log})"
            ) from error
        session.sparkContext.addPyFile(self.path(packaging.package(self._lake.cache)))
        return session

    def _reads_little(self) -> bool:
        """Check whether Spark runs on this machine alone and reads few events."""
        if self._span is None or not self.master.startswith("local"):
            return False
        try:
            files = self._lake.files(*(end.date() for end in self._span))
            return footers.rows(files) <= FEW_ROWS
        except AnalyticsError:
            return False  # the job that reads the broken file reports it


def _exit_code() -> int | None:
    """Return the exit code of the Java process that this process started, if it no longer answers.

    None: it answers, or another process started it.
    """
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    if process is None:
        return None
    if process.poll() is None and not _answers():
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(ENDING_S)
    return int(process.returncode) if process.returncode is not None else None


def _answers() -> bool:
    from py4j.protocol import Py4JError
    from pyspark import SparkContext

    try:
        return SparkContext._jvm is not None and SparkContext._jvm.System.nanoTime() is not None
    except (OSError, Py4JError):
        return False


def _stop(session: SparkSession) -> None:
    """Stop a session, also after its Java process has ended, which PySpark does not expect."""
    from py4j.protocol import Py4JError
    from pyspark import SparkContext

    try:
        session.stop()
    except (OSError, Py4JError):
        session.sparkContext.stop()  # stops the Python side, without Java
        # Otherwise the next session of this process would use the Java that has ended.
        SparkContext._gateway = SparkContext._jvm = None


def first_line(error: Exception) -> str:
    """Return the message of an error of Spark, without the stack trace."""
    text = str(error)
    if raised := _RAISED.findall(text):
        return f"a Python worker failed: {raised[-1].strip()}"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = next((line for line in lines if not line.startswith("An error occurred while")), "")
    if several := re.search(r"MULTIPLE_FAILURES\].*\n\s*1\. (.+)", text):
        told = several[1]  # stages that failed at the same time, one on each line
    return told.removeprefix(": ") or type(error).__name__


@contextlib.contextmanager
def _output_into(log: Path) -> Iterator[None]:
    """Redirect the output of processes that are started inside to a log, for as long as they run.

    Otherwise the standard output of Java would be mixed with the JSON of the command.
    """
    if log.exists() and log.stat().st_size > MAX_LOG_BYTES:
        log.unlink()
    sys.stdout.flush()
    sys.stderr.flush()
    ours = {number: os.dup(number) for number in (1, 2)}
    try:
        with log.open("ab") as file:
            for number in ours:
                os.dup2(file.fileno(), number)
        yield
    finally:
        for number, kept in ours.items():
            os.dup2(kept, number)
            os.close(kept)

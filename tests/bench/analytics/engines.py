"""Processes of the two engines, which run jobs and report what each job cost."""

from __future__ import annotations

import json
import select
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from tests.bench import layout
from tests.bench.analytics.events import WINDOW
from tests.bench.targets import ROOT, TargetError
from tests.support.relay_process import command_environment, migrated_folder

SAMPLE_S = 0.2
TIMEOUT_S = 600.0
"""Maximum seconds of a job, unless the row allows less."""
MIB = 1 << 20
START_S = 120.0


@dataclass(frozen=True)
class Cost:
    """Cost of one run of a job.

    Attributes:
        s: wall seconds.
        cpu_s: CPU seconds of all its processes.
        peak_mib: peak resident memory of all its processes together, in MiB.
        disturbed: mean number of cores that other programs used meanwhile.
    """

    s: float
    cpu_s: float
    peak_mib: float
    disturbed: float

    def as_json(self) -> dict[str, object]:
        """Return the cost as plain values."""
        return asdict(self)


class Duckdb:
    """DuckDB, which runs each job in a process of its own."""

    def __init__(self, lake: Path, folder: Path, memory: str) -> None:
        self._lake, self.out, self._memory = lake, folder / "duckdb", memory
        self.out.mkdir(parents=True, exist_ok=True)

    def run(self, job: str) -> Cost:
        """Compute a job and return its cost."""
        busy_s, began_s = layout.busy_s(), time.perf_counter()
        done = subprocess.run(
            [
                *(sys.executable, "-m", "tests.bench.analytics.duckdb_side"),
                *(str(self._lake), str(self.out), self._memory, job),
            ],
            cwd=ROOT,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise TargetError(f"DuckDB: {done.stderr[-2_000:]}")
        told = json.loads(done.stdout)
        wall_s = time.perf_counter() - began_s
        others_s = max(layout.busy_s() - busy_s - told["cpu_s"], 0.0)
        return Cost(told["s"], told["cpu_s"], told["peak_mib"], others_s / wall_s)


class Spark:
    """One Spark session; `processes` are those of a cluster that work for it, besides its own."""

    def __init__(
        self, process: subprocess.Popen[str], out: Path, processes: Sequence[int] = ()
    ) -> None:
        self._process, self.out, self._others = process, out, processes

    def run(self, job: str, timeout_s: float = TIMEOUT_S) -> Cost:
        """Compute a job and return its cost.

        Raises:
            TargetError: Spark ended, or did not answer in time.
        """
        busy_s, cpu_s = layout.busy_s(), self._cpu_s()
        with self._peak() as peak:
            told = self._ask(f"{job} {self.out}\n", timeout_s)
        seconds = float(told)
        own_s = self._cpu_s() - cpu_s
        others_s = max(layout.busy_s() - busy_s - own_s, 0.0)
        return Cost(seconds, own_s, peak[0], others_s / seconds)

    def wait(self) -> None:
        """Wait until the session is ready."""
        if self._answer(START_S) != "ready\n":
            raise TargetError("Spark did not start")

    def _ask(self, line: str, timeout_s: float) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(line)
        self._process.stdin.flush()
        told = self._answer(timeout_s)
        if not told:
            raise TargetError("Spark ended")
        return told

    def _answer(self, timeout_s: float) -> str:
        """Read one line. Each question has one answer, so no line can be waiting in the buffer."""
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], max(timeout_s, 0.0))[0]:
            self._process.kill()
            raise TargetError(f"Spark did not answer within {timeout_s:.0f} s")
        return self._process.stdout.readline()

    def _pids(self) -> list[int]:
        return [self._process.pid, *self._others]

    def _cpu_s(self) -> float:
        return sum(layout.cpu_s(pid) for pid in self._pids())

    @contextmanager
    def _peak(self) -> Iterator[list[float]]:
        """Sample the memory of all processes; yield a list whose item is the peak in MiB."""
        peak = [0.0]
        over = threading.Event()

        def look() -> None:
            while not over.wait(SAMPLE_S):
                total = 0
                for pid in self._pids():
                    for process in layout.family(pid):
                        with suppress(psutil.NoSuchProcess):
                            total += process.memory_info().rss
                peak[0] = max(peak[0], total / MIB)

        thread = threading.Thread(target=look)
        thread.start()
        try:
            yield peak
        finally:
            over.set()
            thread.join()


@contextmanager
def spark(
    master: str, lake: Path, folder: Path, memory: str, processes: Sequence[int] = ()
) -> Iterator[Spark]:
    """Run a Spark session for several jobs."""
    out = folder / "spark"
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.bench.analytics.spark_side"),
                *(master, str(lake), str(folder / "cache"), memory),
            ],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        session = Spark(process, out, processes)
        try:
            session.wait()
            yield session
        except TargetError as error:
            log.seek(0)
            raise TargetError(f"{error}: {log.read()[-2_000:].decode(errors='replace')}") from None
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def command(job: str, lake: Path, folder: Path, master: str = "local[4]") -> float:
    """Run `rmb_analytics run` for a job and return the seconds it took, start included."""
    database = folder / "data" / "relay.sqlite3"
    database.parent.mkdir(mode=0o700, exist_ok=True)
    shutil.copy(migrated_folder() / database.name, database)
    settings = {
        "analytics.dir": str(lake),
        "analytics.master": master,
        "redis.url": "redis://127.0.0.1:1",
    }
    days = ("--from", str(WINDOW.first), "--to", str(WINDOW.last))
    began_s = time.perf_counter()
    done = subprocess.run(
        [sys.executable, str(ROOT / "manage.py"), "rmb_analytics", "run", job, *days, "--quiet"],
        cwd=folder,
        env=command_environment(folder, settings),
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise TargetError(f"rmb_analytics run: {done.stderr[-2_000:]}")
    shutil.rmtree(lake / "results", ignore_errors=True)
    return time.perf_counter() - began_s


def differing(one: Spark, other: Duckdb, table: str) -> int:
    """Return the number of rows of a table that only one of the two results has."""
    import duckdb  # not at the top: it prints a warning at the exit of every process

    connection = duckdb.connect(config={"memory_limit": "2GB"})
    connection.execute("SET TimeZone = 'UTC'")
    views: dict[str, str] = {
        "a": f"read_parquet('{one.out}/{table}/**/*.parquet', hive_partitioning = false)",
        "b": f"read_parquet('{other.out}/{table}.parquet')",
    }
    columns = ", ".join(
        str(row[0]) for row in connection.execute(f"DESCRIBE FROM {views['b']}").fetchall()
    )
    total = 0
    for left, right in (("a", "b"), ("b", "a")):
        found: Any = connection.execute(
            f"SELECT count(*) FROM (SELECT {columns} FROM {views[left]} "
            f"EXCEPT ALL SELECT {columns} FROM {views[right]})"
        ).fetchone()
        total += int(found[0])
    return total

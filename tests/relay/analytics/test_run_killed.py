"""`rmb_analytics` killed or out of disk space while Spark computes: no partial result is shown."""

from __future__ import annotations

import json
import resource
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from glob import glob  # unlike `Path.glob`, it tolerates folders that vanish
from pathlib import Path
from typing import Any

import psutil
import pytest

from relay.analytics.lake import Lake
from relay.analytics.spark.catalogue import JOBS
from relay.analytics.spark.window import Window
from tests.relay.analytics import duck, rows
from tests.relay.analytics.publishing_cuts import DAYS
from tests.relay.analytics.rows import midnight
from tests.support import frugal_spark
from tests.support.forking import Forked
from tests.support.relay_process import command_environment, migrated_folder, run_command
from tests.support.waiting import wait_until

RUN_S = 180.0
DAY = Window(DAYS[0], DAYS[0])
THAT_DAY = ("--from", str(DAYS[0]), "--to", str(DAYS[0]))
TABLES = [table.name for table in JOBS["rollup"].tables]
SETTINGS = {
    "analytics.cores": "1",
    "analytics.driver_memory": "512m",
    "analytics.master": "local[2]",
    "analytics.spark": frugal_spark.SETTING,
    "redis.url": "redis://127.0.0.1:1",
}
OLD_RESULT = """
from relay.analytics.lake import Lake
from tests.relay.analytics import publishing_cuts
publishing_cuts.publish(Lake.configured(), 1)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return an installation whose published result does not match its events."""
    shutil.copytree(migrated_folder(), tmp_path / "data")
    rows.write(lake_of(tmp_path).events, rows.ordinary(midnight(DAYS[0]), messages=600))
    done = run_command(tmp_path, "shell", "-v", "0", "-c", OLD_RESULT, settings=SETTINGS)
    assert done.returncode == 0, done.stderr
    return tmp_path


def test_until_a_result_is_whole_readers_have_the_old_one(folder: Path) -> None:
    """Readers have the old result through every failure, until a new one is complete.

    All failures use one installation, as each start of Spark is slow.
    """
    old = shown(folder)
    the_disk_is_full(folder)
    assert shown(folder) == old
    the_driver_is_killed(folder)
    assert shown(folder) == old
    the_scratch_folder_is_full(folder)
    assert shown(folder) == old
    java_is_killed_and_the_job_done_again(folder)
    assert shown(folder) != old
    all_is_right(folder)
    nothing_is_left(folder)


def the_disk_is_full(folder: Path) -> None:
    """Fill the disk for both processes, so that the database cannot record the failure either."""
    with writing(folder, "rollup") as (driver, java):
        for process in (java.pid, driver.pid):
            resource.prlimit(process, resource.RLIMIT_FSIZE, (0, 0))
        printed, complaints = driver.communicate(timeout=RUN_S)
    assert (driver.returncode, printed) == (1, "")
    assert complaints in [
        f"CommandError: rollup: {lake_of(folder).results / table}: File too large\n"
        for table in TABLES
    ]
    assert runs(folder) == [("done", 2, ""), ("running", 0, "")]


def the_driver_is_killed(folder: Path) -> None:
    with writing(folder, "rollup") as (driver, java):
        driver.kill()
        driver.wait()
        gone, _ = psutil.wait_procs([java], timeout=30)
        assert gone, "its Java is an orphan"
    status = run_command(folder, "rmb_analytics", "status", "--json", settings=SETTINGS)
    latest = json.loads(status.stdout)["runs"][0]
    assert (latest["state"], latest["error"]) == ("failed", "the process was killed")
    assert runs(folder)[1:] == [("failed", 0, "the process was killed")] * 2


def the_scratch_folder_is_full(folder: Path) -> None:
    """Fill the disk for Spark alone, before it writes a result: the database records the reason."""
    scratch = lake_of(folder).cache / "spark"

    def begun() -> set[Path]:
        return set(map(Path, glob(f"{scratch}/**/blockmgr-*", recursive=True)))

    with running(folder, "rollup", begun=begun) as started:
        driver, java = started
        resource.prlimit(java.pid, resource.RLIMIT_FSIZE, (0, 0))
        printed, complaints = driver.communicate(timeout=RUN_S)
    told = f"rollup: {scratch}: File too large"
    assert (driver.returncode, printed, complaints) == (1, "", f"CommandError: {told}\n")
    assert runs(folder)[3:] == [("failed", 0, told.removeprefix("rollup: "))]


def java_is_killed_and_the_job_done_again(folder: Path) -> None:
    """Kill Java; the same driver starts another one for its second job."""
    with writing(folder, "rollup", "rollup") as (driver, java):
        java.kill()
        printed, complaints = driver.communicate(timeout=RUN_S)
    assert driver.returncode == 1
    (line,) = complaints.splitlines()
    told = "rollup: the Java of Spark was killed (signal 9)"
    assert line.startswith(f"CommandError: {told}")
    assert printed.startswith("rollup       1 computed")
    failed, done = runs(folder)[4:]
    assert failed[:2] == ("failed", 0) and failed[2] in line
    assert done == ("done", 1, "")


def all_is_right(folder: Path) -> None:
    lake = lake_of(folder)
    with duck.connect(lake.events) as connection:
        for table in TABLES:
            ((run,),) = ask(
                folder,
                f"SELECT folder FROM relay_analytics_published "
                f"WHERE \"table\" = '{table}' AND period = '{DAYS[0]}'",
            )
            made = f"SELECT * FROM read_parquet('{lake.results / run}/*.parquet')"
            wanted = f"SELECT * FROM ({duck.query(table)})"
            bounds = {"start": DAY.start_us, "end": DAY.end_us}
            connection.execute(f"CREATE TABLE wanted_{table} AS {wanted}", bounds)
            connection.execute(f"CREATE TABLE made_{table} AS {made}")
            for one, other in (("made", "wanted"), ("wanted", "made")):
                only = f"FROM {one}_{table} EXCEPT ALL SELECT * FROM {other}_{table} LIMIT 5"
                assert not connection.execute(only).fetchall(), (table, one)
        pairs = "SELECT relay, remote, attempts, bytes, p95_us FROM"
        files = connection.execute(f"{pairs} made_relay_pair_hour").fetchall()
    found = ask(folder, f"{pairs} relay_analytics_relaypairhour WHERE period = '{DAYS[0]}'")
    assert set(found) == set(files) and len(found) == len(files) > 0


def nothing_is_left(folder: Path) -> None:
    lake = lake_of(folder)
    assert not list(lake.results.rglob("_tmp-*"))
    assert [path.name for path in (lake.cache / "spark").iterdir()] == ["lock"]


def shown(folder: Path) -> list[Any]:
    """Return all that readers get of the job: the ledger, its files, rows of the database."""
    ledger = ask(folder, 'SELECT * FROM relay_analytics_published ORDER BY "table", period')
    lake = lake_of(folder)
    named = {
        path: path.read_bytes()
        for table in TABLES
        for path in (lake.results / table).glob("[!_]*/*/*")
    }
    assert named
    return [ledger, named, ask(folder, "SELECT * FROM relay_analytics_relaypairhour")]


@contextmanager
def writing(folder: Path, *jobs: str) -> Iterator[tuple[subprocess.Popen[str], psutil.Process]]:
    """Start a driver; yield it and its Java once Spark writes the first of two tables."""
    drafts = lake_of(folder).results / TABLES[0]
    with running(folder, *jobs, begun=lambda: set(drafts.glob("_tmp-*"))) as started:
        yield started


@contextmanager
def running(
    folder: Path, *jobs: str, begun: Callable[[], set[Path]]
) -> Iterator[tuple[subprocess.Popen[str], psutil.Process]]:
    """Start a driver; yield it and its Java once `begun` finds more files than before."""
    before = begun()
    driver = Forked(
        ["rmb_analytics", "backfill", *jobs, *THAT_DAY, "--quiet"],
        cwd=folder,
        env=command_environment(folder, SETTINGS),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    java: list[psutil.Process] = []
    try:
        wait_until(lambda: driver.poll() is not None or begun() - before, RUN_S)
        assert driver.poll() is None, driver.communicate()[1]
        java = psutil.Process(driver.pid).children()
        (its,) = java
        yield driver, its
    finally:
        driver.kill()
        driver.communicate()
        _, left = psutil.wait_procs(java, timeout=30)
        for process in left:
            process.kill()


def runs(folder: Path) -> list[tuple[Any, ...]]:
    return ask(folder, "SELECT state, periods, error FROM relay_analytics_run ORDER BY id")


def ask(folder: Path, question: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(folder / "data" / "relay.sqlite3")) as database:
        return database.execute(question).fetchall()


def lake_of(folder: Path) -> Lake:
    return Lake(folder / "data" / "analytics")

"""A job on a real cluster, one of whose workers is killed during the computation."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

from relay.analytics.spark.window import Window
from tests.relay.analytics import duck, rows
from tests.relay.analytics.rows import FIRST, midnight
from tests.support import frugal_spark
from tests.support.spark_cluster import SparkCluster
from tests.support.waiting import wait_until

DAYS = Window(FIRST, FIRST + timedelta(days=1))
SETTINGS = (
    frugal_spark.SETTING,
    "spark.executor.memory=512m",
    "spark.sql.files.maxPartitionBytes=32m",  # more tasks than pass the gate
    "spark.sql.files.openCostInBytes=4m",
)


def test_a_worker_is_killed_and_the_result_is_right(tmp_path: Path) -> None:
    """The result is right although the worker's executor is lost, with all that it had shuffled."""
    lake, gate = tmp_path / "lake", tmp_path / "gate"
    gate.mkdir()
    for day in DAYS.days():
        rows.write(lake / "events", rows.ordinary(midnight(day), messages=300))
    with SparkCluster(tmp_path / "cluster") as cluster:
        assert "REST server" not in (tmp_path / "cluster" / "master.log").read_text()
        driver = subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.relay.analytics.cluster_driver", str(lake)),
                *(cluster.master, str(gate), str(DAYS.first), str(DAYS.last)),
            ],
            env={
                **os.environ,
                "RMB_DATA__DIR": str(tmp_path / "data"),
                "RMB_ANALYTICS__SPARK": ",".join(SETTINGS),
                "RMB_ANALYTICS__DRIVER_MEMORY": "512m",
                "DJANGO_SETTINGS_MODULE": "rmbsite.settings",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            told = wait_until(
                lambda: driver.poll() is not None or _both(gate), 180, lambda: "no task waits"
            )
            assert told is not True, driver.communicate()[1]
            for each in told:
                assert each["package"].partition(".zip")[1], "executors take it from elsewhere"
                assert not each["django"]
            victim = told[0]["executor"]
            worker = _parent(victim)
            assert worker in {process.pid for process in cluster.workers}
            os.kill(worker, signal.SIGKILL)
            os.kill(victim, signal.SIGKILL)
            (gate / "go").touch()
            printed, complaints = driver.communicate(timeout=180)
        finally:
            driver.kill()
            driver.communicate()
    assert driver.returncode == 0, complaints
    outcome = json.loads(printed)
    assert outcome["computed"] == 2
    with duck.connect(lake / "events") as connection:
        wanted = f"SELECT * FROM ({duck.query('twin_hour')})"
        bounds = {"start": DAYS.start_us, "end": DAYS.end_us}
        connection.execute(f"CREATE TABLE wanted AS {wanted}", bounds)
        connection.execute(
            "CREATE TABLE made AS SELECT * FROM read_parquet($files)", {"files": outcome["files"]}
        )
        assert connection.execute("SELECT count(*) FROM made").fetchall()[0][0] > 200
        for one, other in (("made", "wanted"), ("wanted", "made")):
            only = f"FROM {one} EXCEPT ALL SELECT * FROM {other} LIMIT 5"
            assert not connection.execute(only).fetchall(), one


def _both(gate: Path) -> list[dict[str, object]]:
    """Return the reports of a task of each of the two executors, once both wait."""
    told = [json.loads(path.read_text()) for path in sorted(gate.glob("*.json"))]
    return told if len({each["executor"] for each in told}) == 2 else []


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])

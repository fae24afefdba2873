"""A real standalone cluster of Spark on loopback: a master and workers, one process each."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from types import TracebackType

import pyspark

from relay.analytics.spark import classes, java
from tests.support.waiting import wait_until

_CLASSES = "org.apache.spark.deploy"
_NO_PORT = ("--webui-port", "0")
_OPTIONS = " ".join(
    (
        *classes.options(classes.path()),
        "-Dspark.master.rest.enabled=false",  # it would accept jobs of any client on port 6066
    )
)


class SparkCluster:
    """Cluster that is started on entry and ended on exit.

    Attributes:
        master: URL of the master, `spark://127.0.0.1:port`.
        workers: processes of the workers; executors are their children.
    """

    def __init__(
        self, folder: Path, workers: int = 2, *, cores: int = 1, memory: str = "1g"
    ) -> None:
        self.master = ""
        self.workers: list[subprocess.Popen[bytes]] = []
        self._folder = folder
        self._count = workers
        self._each = ("--cores", str(cores), "--memory", memory)
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> SparkCluster:
        try:
            self._start("master", "master.Master", "--host", "127.0.0.1", "--port", "0")
            self.master = self._said("master", r"Starting Spark master at (spark://\S+)")
            for number in range(self._count):
                name = f"worker{number}"
                work = str(self._folder / name)
                more = (*self._each, "--work-dir", work, self.master)
                self.workers.append(
                    self._start(name, "worker.Worker", "--host", "127.0.0.1", *more)
                )
            for number in range(self._count):
                self._said(f"worker{number}", "(Successfully registered with master)")
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()

    @property
    def pids(self) -> list[int]:
        """Ids of all its processes except the executors."""
        return [process.pid for process in self._processes]

    def _start(self, name: str, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        self._folder.mkdir(parents=True, exist_ok=True)
        home = Path(pyspark.__file__).parent
        with self._log(name).open("wb") as log:
            process = subprocess.Popen(
                [home / "bin" / "spark-class", f"{_CLASSES}.{program}", *arguments, *_NO_PORT],
                env={
                    **os.environ,
                    "JAVA_HOME": java.home(self._folder),
                    "SPARK_HOME": str(home),
                    "SPARK_LOCAL_IP": "127.0.0.1",
                    "SPARK_LOCAL_DIRS": str(self._folder / "local"),
                    "SPARK_DAEMON_MEMORY": "256m",
                    "SPARK_DAEMON_JAVA_OPTS": _OPTIONS,
                },
                stdout=log,
                stderr=log,
            )
        self._processes.append(process)
        return process

    def _said(self, name: str, pattern: str) -> str:
        def found() -> str | None:
            match = re.search(pattern, self._log(name).read_text(errors="replace"))
            return match[1] if match else None

        return str(wait_until(found, 120))

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def _stop(self) -> None:
        """Terminate the workers first, so that they end their executors."""
        for process in reversed(self._processes):
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

"""Real relays for tests: `manage.py runrelay` with its workers, on free loopback ports.

A relay gets its own data folder and a SQLite database that already has its tables and knows the
test twins (made once per run by the real commands `migrate` and `rmb_twin import`, then copied).
Its output goes to a file; `show_new_log` prints what a test added to it, so that a failing test
shows it.
"""

from __future__ import annotations

import atexit
import contextlib
import csv
import functools
import http.client
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import psutil
import redis
from prometheus_client.parser import text_string_to_metric_families

from proto.federation.domains import is_name
from relay.queues import keys
from tests.support import forking
from tests.support.forking import ROOT as ROOT
from tests.support.forking import WITHOUT_TELEMETRY as WITHOUT_TELEMETRY
from tests.support.forking import without_settings
from tests.support.identities import TEST_DOMAIN
from tests.support.redis_servers import RedisServer, free_port
from tests.support.secrets_in_logs import assert_none
from tests.support.waiting import POLL_S, eventually
from tests.support.world import all_twins_csv

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0
REQUEST_TIMEOUT_S = 40.0
CALLBACK_FAILED = "asyncio: Exception in callback"


def command_environment(folder: Path, settings: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a management command: only the given settings.

    It is without OpenTelemetry, unless the settings say where to send traces.
    """
    inherited = without_settings(os.environ)
    if "otel.endpoint" not in settings:
        path = [str(WITHOUT_TELEMETRY), *filter(None, [inherited.get("PYTHONPATH")])]
        inherited["PYTHONPATH"] = os.pathsep.join(path)
    return {
        **inherited,
        "PYTHONUNBUFFERED": "1",
        "RMB_DATA__DIR": str(folder / "data"),
        **{f"RMB_{name.upper().replace('.', '__')}": value for name, value in settings.items()},
    }


def run_command(
    folder: Path,
    *arguments: str,
    settings: Mapping[str, str] | None = None,
    timeout_s: float = START_TIMEOUT_S,
) -> subprocess.CompletedProcess[str]:
    """Run one management command to its end; the caller checks the exit code."""
    return forking.run(
        arguments,
        cwd=folder,
        env=command_environment(folder, settings or {}),
        text=True,
        timeout=timeout_s,
    )


@functools.cache
def migrated_folder() -> Path:
    """Return a data folder whose database has its tables, to be copied.

    Making the tables takes longer than a start.
    """
    folder = Path(tempfile.mkdtemp(prefix="rmb-migrated-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    _run_or_fail(folder, "migrate", "-v", "0", "--skip-checks")
    return folder / "data"


def _run_or_fail(folder: Path, *arguments: str, settings: Mapping[str, str] | None = None) -> None:
    # No Redis is needed to fill the database: no server listens on this port.
    settings = {"redis.url": "redis://127.0.0.1:1", **(settings or {})}
    done = run_command(folder, *arguments, settings=settings)
    assert done.returncode == 0, f"{arguments}: {done.stdout}\n{done.stderr}"


def make_data_folder(folder: Path, twins: str | None = None) -> Path:
    """Make a data folder with a database that knows twins, to be copied for each relay.

    Args:
        folder: parent of the data folder.
        twins: twins as CSV; default: those of `tests.support.world`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / "twins.csv"
    rows = all_twins_csv() if twins is None else twins
    source.write_text(rows)
    shutil.copytree(migrated_folder(), folder / "data")
    # An older release accepted any text as a relay. Now a text that is not a name is accepted only
    # if it is one of the relay's own names, so all of these are made its names here.
    texts = {relay for row in csv.reader(rows.splitlines()) for relay in row[3].split("_")}
    odd = " ".join(text for text in texts if not is_name(text))
    _run_or_fail(folder, "rmb_twin", "import", str(source), settings={"relay.domains": odd})
    return folder / "data"


class RelayProcess:
    """One `runrelay` and its workers.

    Attributes:
        redis: its server, if the test started one for it.
        url: URL of the websocket, without path and token.
        port, admin_port: ports of the public and the operator's listener; 0 without one.
    """

    running: list[RelayProcess] = []  # noqa: RUF012 - a register of the process, for failing tests

    def __init__(
        self,
        folder: Path,
        data_template: Path | None = None,
        redis_server: RedisServer | None = None,
        *,
        redis_url: str = "",
        processes: int = 1,
        server: str = "uvicorn",
        domains: tuple[str, ...] = (TEST_DOMAIN,),
        twins: str = "registry",
        settings: Mapping[str, str] | None = None,
        port: int = 0,
        operator_site: bool = False,
    ) -> None:
        """
        Args:
            data_template: folder that is copied; without it there are no twins in the database.
            operator_site: whether to run one more process, which starts as slowly as a worker.
        """
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copytree(data_template or migrated_folder(), folder / "data", dirs_exist_ok=True)
        self.folder = folder
        self.redis = redis_server
        self.redis_url = redis_url or redis_server.url  # type: ignore[union-attr]
        self.port = port or free_port()
        self.admin_port = free_port() if operator_site else 0
        self.url = f"ws://127.0.0.1:{self.port}"
        self.log_path = folder / "relay.log"
        self.settings = {
            "redis.url": self.redis_url,
            # Tests open hundreds of connections at once from one address.
            "relay.handshakes_per_ip_per_s": "0",
            # It adds two processes to each relay: tests of federation and the chain turn it on.
            "celery.embedded": "0",
            **(settings or {}),
        }
        self._arguments = [
            "runrelay",
            *("--listen", f"127.0.0.1:{self.port}"),
            *("--admin-listen", f"127.0.0.1:{self.admin_port}" if operator_site else "none"),
            *("--processes", str(processes), "--server", server),
            *("--twins", twins, "--domain", *domains),
        ]
        self.processes = processes
        self.server = server
        self._process: subprocess.Popen[bytes] | None = None
        self._log_shown = 0

    def start(self, *, wait: bool = True) -> RelayProcess:
        """Start the relay and, if `wait`, return when it is ready."""
        with self.log_path.open("ab") as log:
            self._process = forking.Forked(
                self._arguments,
                cwd=self.folder,
                env=command_environment(self.folder, self.settings),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        RelayProcess.running.append(self)
        if wait:
            self.wait_ready()
        return self

    def wait_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Wait until `/ready` answers with 200 and all workers have sent a heartbeat."""
        assert self._process is not None
        deadline = time.monotonic() + timeout_s
        while True:
            if self._process.poll() is not None:
                raise RuntimeError(f"runrelay ended:\n{self.log()}")
            try:
                if self.get("/ready")[0] == 200 and len(self.worker_pids()) >= self.processes:
                    return
            except OSError:
                pass  # not listening yet
            if time.monotonic() > deadline:
                raise RuntimeError(f"runrelay is not ready:\n{self.log()}")
            time.sleep(POLL_S)

    @property
    def pid(self) -> int:
        """Process id of the supervisor."""
        assert self._process is not None
        return self._process.pid

    def get(self, path: str, *, admin: bool = False) -> tuple[int, str]:
        """Send a GET request; return status and body."""
        port = self.admin_port if admin else self.port
        assert port, "started without the operator site"
        # The first request of an operator site imports its pages: seconds on a loaded machine.
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=REQUEST_TIMEOUT_S)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode(errors="replace")
        finally:
            connection.close()

    def metrics(self) -> dict[str, float]:
        """Return the figures of `/metrics`: `name{label="value"}` to the sum over all processes."""
        status, text = self.get("/metrics")
        assert status == 200, text
        figures: dict[str, float] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                labels = ",".join(f'{name}="{value}"' for name, value in sample.labels.items())
                key = f"{sample.name}{{{labels}}}" if labels else sample.name
                figures[key] = figures.get(key, 0.0) + sample.value
        return figures

    def counted(self, name: str, **labels: str) -> float:
        """Return the sum of a metric over all samples with these labels, whatever their others."""
        wanted = {f'{label}="{value}"' for label, value in labels.items()}
        total = 0.0
        for key, value in self.metrics().items():
            found, _, rest = key.partition("{")
            if found == name and wanted <= set(rest.rstrip("}").split(",")):
                total += value
        return total

    def database_path(self) -> Path:
        """Return the SQLite file of its site."""
        (path,) = (self.folder / "data").glob("*.sqlite3")
        return path

    def worker_pids(self) -> dict[str, int]:
        """Return boot id and process id of the workers that have sent a heartbeat."""
        return {boot: int(fields["pid"]) for boot, fields in self.worker_hashes().items()}

    def worker_hashes(self) -> dict[str, dict[str, str]]:
        """Return boot id and heartbeat of the workers whose process exists."""
        found = {}
        # Ask Redis directly, not through a proxy that a test put before it.
        url = self.redis.url if self.redis is not None else self.redis_url
        client = redis.Redis.from_url(
            url, decode_responses=True, socket_timeout=60, driver_info=None
        )
        try:
            for key in client.scan_iter("relay:worker:*"):
                fields = client.hgetall(key)
                if "pid" in fields and Path(f"/proc/{fields['pid']}").exists():
                    found[key.removeprefix("relay:worker:")] = fields
        except redis.ConnectionError as error:
            raise OSError(str(error)) from error
        finally:
            client.close()
        return found

    def hang_up(self) -> None:
        """Request a rolling restart."""
        os.kill(self.pid, signal.SIGHUP)

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Stop gracefully, or kill the relay if it does not end in time; return the exit code.

        Its log must not contain tokens or failed callbacks.
        """
        process = self._process
        if process is None:
            return 0
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                # The workers notice that their supervisor has ended.
                process.kill()
                process.wait()
        self._process = None
        RelayProcess.running.remove(self)
        log = self.log()
        assert_none(log)
        assert CALLBACK_FAILED not in log
        return process.returncode

    def kill(self) -> None:
        """Kill supervisor, workers and operator site at once, as a power cut would."""
        supervisor = psutil.Process(self.pid)
        family = [supervisor, *supervisor.children(recursive=True)]
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self.stop()
        psutil.wait_procs(family, timeout=STOP_TIMEOUT_S)

    def log(self) -> str:
        """Return all output so far."""
        return self.log_path.read_text(errors="replace")

    def show_new_log(self) -> None:
        """Print what was logged since the last call: pytest shows it if the test failed."""
        text = self.log()
        if text[self._log_shown :]:
            print(f"--- log of the relay at port {self.port}\n{text[self._log_shown :]}")
        self._log_shown = len(text)


async def heartbeats(relay: RelayProcess, count: int) -> None:
    """Wait until every worker has begun this many heartbeats, which do not overlap."""
    assert relay.redis is not None
    for _ in range(count):
        before = relay.redis.run("HGETALL", keys.WORKERS_SEEN)
        boots = {boot.encode() for boot in relay.worker_hashes()}

        def all_began(boots: set[bytes] = boots, before: dict[bytes, bytes] = before) -> bool:
            now = relay.redis.run("HGETALL", keys.WORKERS_SEEN)
            return all(now.get(boot) != before.get(boot) for boot in boots)

        await eventually(all_began, what="a heartbeat of each worker")


def directory(server: RedisServer) -> dict[str, tuple[int, str]]:
    """Return the session directory: key text to (epoch, boot id)."""
    entries = server.run("HGETALL", "relay:sessions")
    found = {}
    for key, value in entries.items():
        epoch, boot, *_ = value.decode().split(" ")
        found[key.decode()] = (int(epoch), boot)
    return found


def published(relay: RelayProcess, series: str) -> float:
    """Return the sum of a series over the heartbeats of all workers on the relay's Redis.

    `/metrics` shows one worker for each slot and host, and so not two relays on one host.
    """
    return sum(
        json.loads(fields.get("metrics", "{}")).get(series, 0.0)
        for fields in relay.worker_hashes().values()
    )

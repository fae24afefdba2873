"""Relays started from a command line, as an operator does, and queries about them."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tests.support.children import descendants
from tests.support.forking import MANAGE, Forked
from tests.support.redis_servers import free_port
from tests.support.relay_process import (
    ROOT,
    WITHOUT_TELEMETRY,
    command_environment,
    migrated_folder,
)
from tests.support.waiting import eventually

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 40.0
DATABASE = "relay.sqlite3"


class Started:
    """A relay started from a command line; its output goes to a file."""

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        module: bool = False,
        celery: bool = False,
        fresh: bool = False,
        own_start: bool = False,
        settings: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """
        Args:
            module: whether to start `rmb-relay`, not `runrelay`.
            own_start: whether to start it from a command line, not by forking; `module` implies it.
            celery: whether to run its Celery workers.
            fresh: whether to start without a database; otherwise there is one with its tables.
            settings: further settings, from the environment.
        """
        self.folder = folder
        self.data_dir = folder / "data"
        if not fresh:
            make_tables(self.data_dir)
        self._log_path = folder / "out.log"
        environment = command_environment(folder, {"celery.embedded": str(int(celery)), **settings})
        environment["PYTHONPATH"] = f"{WITHOUT_TELEMETRY}{os.pathsep}{ROOT}"
        self.since = self._log_path.stat().st_size if self._log_path.exists() else 0
        with self._log_path.open("ab") as log:
            options: dict[str, Any] = {
                "cwd": folder,
                "env": environment,
                "stdin": subprocess.DEVNULL,
                "stdout": log,
                "stderr": subprocess.STDOUT,
                "start_new_session": True,
            }
            self.process: subprocess.Popen[Any]
            if module or own_start:
                program = ["-m", "relay.server.cli"] if module else [MANAGE, "runrelay"]
                command = [sys.executable, *program, *arguments]
                self.process = subprocess.Popen(command, **options)
            else:
                self.process = Forked(["runrelay", *arguments], **options)

    def output(self) -> str:
        """Return what this start has written so far."""
        return self._log_path.read_bytes()[self.since :].decode()

    async def ready(self) -> Started:
        """Wait for the line that reports that the relay is ready."""

        def said() -> bool:
            assert self.process.poll() is None, self.output()
            return "ready after" in self.output()

        await eventually(said, START_TIMEOUT_S, "ready")
        if "--embedded" in self.process.args:  # type: ignore[operator]
            await eventually((self.data_dir / "runtime.json").exists)
        return self

    def runtime(self) -> dict[str, Any]:
        """Return what an embedded relay publishes for other programs."""
        found: dict[str, Any] = json.loads((self.data_dir / "runtime.json").read_text())
        return found

    def descendants(self) -> list[int]:
        """Return the ids of all its descendants."""
        return descendants(self.process.pid)

    def stop(self) -> int:
        """Terminate the relay; return the exit code. It must not have had to kill a child."""
        self.process.terminate()
        code = self.process.wait(STOP_TIMEOUT_S)
        assert "was killed" not in self.output()
        return code


def make_tables(data_dir: Path) -> None:
    """Create a data folder whose database has its tables, unless the database exists."""
    data_dir.mkdir(mode=0o700, exist_ok=True)
    database = data_dir / DATABASE
    if not database.exists():
        shutil.copy(migrated_folder() / DATABASE, database)


def exists(pid: int) -> bool:
    """Check whether a process runs; one that ended and was not reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def embedded(*more: str) -> list[str]:
    """Return the arguments of an embedded start on free ports."""
    return [
        "--embedded",
        *("--listen", f"127.0.0.1:{free_port()}"),
        *("--admin-listen", f"127.0.0.1:{free_port()}"),
        *more,
    ]


def plain(redis_url: str, *more: str) -> list[str]:
    """Return the arguments of a start without embedded servers, on free ports."""
    return [
        *("--domain", "localhost", "--twins", "registry", "--redis", redis_url),
        *("--listen", f"127.0.0.1:{free_port()}", "--admin-listen", "none"),
        *more,
    ]


async def get(url: str) -> tuple[int, bytes]:
    """Send a GET request; return status and body."""
    host, _, port = url.partition("://")[2].partition("/")[0].rpartition(":")
    reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    path = "/" + url.partition("://")[2].partition("/")[2]
    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return int(answer.split(b" ", 2)[1]), answer.partition(b"\r\n\r\n")[2]

"""`rmb-peer` and `rmb`, run as their users do: a process, its output, its exit code."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.support.identities import Twin
from tests.support.relay_process import ROOT
from tests.support.waiting import eventually

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0

GATEWAY = "peer.gateway.command"
CLI = "peer.cli.command"


def write_secret(folder: Path, who: Twin) -> Path:
    """Write a file with a twin's TEST KEY; return its path."""
    path = folder / f"secret-{who.id}"
    path.write_text(f"0x{who.mini_secret.hex()}\n")
    path.chmod(0o600)
    return path


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of a program, with no RMB variables except the given ones."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("RMB_")}
    return {**clean, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **(more or {})}


def run_program(
    module: str,
    folder: Path,
    *arguments: str,
    stdin: bytes | None = None,
    more: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """Run a program to its end; the caller checks the exit code."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", module, *arguments],
        cwd=folder,
        env=environment(more),
        input=stdin or b"",
        capture_output=True,
        timeout=START_TIMEOUT_S,
    )


class Program:
    """A program that runs until it is stopped."""

    def __init__(
        self, module: str, folder: Path, *arguments: str, more: Mapping[str, str] | None = None
    ) -> None:
        self._log_path = folder / f"{module.split('.')[1]}-{len(list(folder.iterdir()))}.log"
        with self._log_path.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-W", "error", "-m", module, *arguments],
                cwd=folder,
                env=environment(more),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def log(self) -> str:
        """Return its output so far."""
        return self._log_path.read_text(errors="replace")

    async def says(self, text: str, timeout_s: float = START_TIMEOUT_S) -> None:
        """Wait until its output contains a text."""

        def said() -> bool:
            if text in self.log():
                return True
            assert self.process.poll() is None, f"ended before {text!r}:\n{self.log()}"
            return False

        await eventually(said, timeout_s, f"{text!r} in\n{self.log()}")

    async def ended(self) -> int:
        """Wait until it has ended by itself; return its exit code."""
        await eventually(lambda: self.process.poll() is not None, START_TIMEOUT_S, "the end")
        return self.process.returncode

    def stop(self) -> int:
        """Terminate the program, or kill it if it does not end in time; return the exit code."""
        self.process.terminate()
        try:
            return self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()

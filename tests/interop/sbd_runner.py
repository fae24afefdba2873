"""A server for external SBD test suites: `python -m tests.interop.sbd_runner`.

It follows their launch contract on stdin and stdout: it prints `CMD/READY`, then for each
`CMD/START` starts a fresh server and prints `CMD/START/<address>`. All other output goes to stderr.
The relay ends with the runner, however the runner ends. Settings come from the environment, such as
`RMB_RELAY__PROCESSES=2`.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.support.redis_servers import free_port

ROOT: Final = Path(__file__).resolve().parents[2]
START_S: Final = 60.0
POLL_S: Final = 0.05
_PR_SET_PDEATHSIG: Final = 1


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


@contextlib.contextmanager
def fresh_server() -> Iterator[str]:
    """Run a relay with a listener for SBD, and yield its address."""
    port, public = free_port(), free_port()
    with tempfile.TemporaryDirectory(prefix="sbd-") as folder:
        process = subprocess.Popen(
            [
                *(sys.executable, str(ROOT / "manage.py"), "runrelay", "--embedded"),
                *("--listen", f"127.0.0.1:{public}", "--admin-listen", "none"),
                *("--sbd-listen", f"127.0.0.1:{port}", "--data", f"{folder}/data"),
            ],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT), "RMB_CELERY__EMBEDDED": "0"},
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr,
            preexec_fn=_end_with_parent,
        )
        try:
            _wait_ready(process, f"http://127.0.0.1:{public}/ready")
            yield f"127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait()


def _wait_ready(process: subprocess.Popen[bytes], url: str) -> None:
    deadline = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < deadline:
        with (
            contextlib.suppress(OSError, urllib.error.URLError),
            urllib.request.urlopen(url, timeout=START_S),
        ):
            return
        time.sleep(POLL_S)
    raise RuntimeError("the relay did not start")


def main() -> None:
    """Serve until stdin ends."""
    print("CMD/READY", flush=True)
    with contextlib.ExitStack() as stack:
        for line in sys.stdin:
            if line.strip() != "CMD/START":
                raise SystemExit(f"expected CMD/START, got {line!r}")
            stack.close()
            print(f"CMD/START/{stack.enter_context(fresh_server())}", flush=True)


if __name__ == "__main__":
    main()

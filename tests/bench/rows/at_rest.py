"""Row about an unused embedded relay: its start, and the memory of all its processes."""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from relay.server.embedded import RUNTIME_FILE
from relay.server.warm import REST_S
from tests.bench import layout, targets
from tests.bench.bench import Bench
from tests.bench.figures import Figure, Row
from tests.support.redis_servers import free_port

SETTLED_S = 8.0
"""Seconds after ready when the CPU time of the start is read; background work starts later."""


def idle_memory(bench: Bench) -> Row:
    """Measure time and CPU time of a start with an existing data folder, and memory at rest."""
    ready_s: list[float] = []
    cpu_s: list[float] = []
    with tempfile.TemporaryDirectory(prefix="rmbb-", ignore_cleanup_errors=True) as folder:
        with _started(Path(folder)):
            pass
        for run in range(bench.runs):
            with _started(Path(folder)) as (pid, needed_s):
                time.sleep(SETTLED_S)
                ready_s.append(needed_s)
                cpu_s.append(layout.cpu_s(pid))
                if run == bench.runs - 1:
                    time.sleep(REST_S)  # until the warm parent has ended
                    pss = layout.shared_memory(pid)
    figures = [
        Figure("memory (PSS)", pss / 2**20, "MiB", must=200, goal=140, lower_is_better=True),
        Figure(
            "ready after", statistics.median(ready_s), "s", must=2.5, goal=1.2, lower_is_better=True
        ),
        Figure(f"CPU time until {SETTLED_S:.0f} s later", statistics.median(cpu_s), "s"),
    ]
    samples = {"starts": [{"ready_s": a, "cpu_s": b} for a, b in zip(ready_s, cpu_s, strict=True)]}
    return Row("idle-memory", "an embedded relay at rest, with its Valkey", figures, samples)


@contextmanager
def _started(folder: Path) -> Iterator[tuple[int, float]]:
    """Run a relay in a folder; yield its process id, and the seconds until it was ready."""
    runtime = folder / "data" / RUNTIME_FILE
    command = [
        *(sys.executable, "manage.py", "runrelay", "--embedded", "--data", str(runtime.parent)),
        *("--listen", f"127.0.0.1:{free_port()}", "--admin-listen", f"127.0.0.1:{free_port()}"),
    ]
    cores = frozenset(os.sched_getaffinity(0))
    began = time.monotonic()
    process = targets.start(command, cores, folder / "relay.log", {})
    try:
        while not runtime.exists():
            if process.poll() is not None or time.monotonic() - began > targets.START_TIMEOUT_S:
                raise targets.TargetError((folder / "relay.log").read_text())
            time.sleep(targets.POLL_S)
        yield process.pid, time.monotonic() - began
    finally:
        targets.stop(process)

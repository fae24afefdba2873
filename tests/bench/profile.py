"""Profile of a relay worker under a row's load, by sampling (`sampling/`).

For `slow` and `beside`, the load of the first row runs beside their slow readers or idle sessions.
Time that the event loop spends in C between two callbacks counts for the callback that runs next.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import psutil

from tests.bench.bench import Bench
from tests.bench.measure import WARM_UP_S, connect, leave
from tests.bench.rows import sessions
from tests.bench.rows.sessions import PATIENCE
from tests.bench.rows.throughput import FIRST_ROW, LOADS
from tests.bench.targets import ROOT, TargetError

SHOWN = 30
MOST_SECONDS = 30.0


CROWDS = {"slow": sessions.slow_crowd, "beside": sessions.idle_crowd}
PROFILED = (*LOADS, *CROWDS)


def profile(bench: Bench, row: str) -> str:
    """Run a row's load once with sampling on, and return the worker's samples as text."""
    load = LOADS.get(row, FIRST_ROW)
    crowd = CROWDS[row](bench) if row in CROWDS else None
    known = [*load.twins, *(crowd.known if crowd else ())]
    with tempfile.TemporaryDirectory(prefix="rmbb-") as name:
        folder = Path(name)
        sampled = replace(bench, options=replace(bench.options, profile_folder=folder))
        with sampled.relay(known, PATIENCE) as ours, sampled.generators() as generators:
            workers = ours.worker_pids
            if crowd:
                crowd.gather(ours, generators)
            shares = connect(ours, generators, load, bench.seconds)
            generators.all("start", window=load.window)
            time.sleep(WARM_UP_S)
            (folder / "on").touch()
            before = [psutil.Process(pid).cpu_times() for pid in workers]
            time.sleep(min(bench.seconds, MOST_SECONDS))
            after = [psutil.Process(pid).cpu_times() for pid in workers]
            (folder / "on").unlink()
            time.sleep(WARM_UP_S)
            generators.all("stop", timeout_s=10)
            leave(generators, shares)
        sampled_workers = [path for pid in workers if (path := folder / f"{pid}.json").exists()]
        if not sampled_workers:
            raise TargetError("no worker wrote samples: is PYTHONPATH passed on to it?")
        spent = [
            f"worker: {end.user - start.user:.1f} s in Python and libraries, "
            f"{end.system - start.system:.1f} s in the kernel"
            for start, end in zip(before, after, strict=True)
        ]
        return "\n".join([*spent, *map(_described, sampled_workers)])


def _described(path: Path) -> str:
    stacks = [(stack, count) for stack, count in json.loads(path.read_text())]
    total = sum(count for _, count in stacks) or 1
    lines: Counter[str] = Counter()
    functions: Counter[str] = Counter()
    inclusive: Counter[str] = Counter()
    for stack, count in stacks:
        lines[stack[0]] += count
        functions[stack[0].rsplit(":", 1)[0]] += count
        for function in {place.rsplit(":", 1)[0] for place in stack}:
            inclusive[function] += count
    text = [f"{total} samples, evenly spread over the CPU time of one worker"]
    for title, counter in (
        ("in the function itself", functions),
        ("in the function and what it calls", inclusive),
        ("on the line", lines),
    ):
        text += ["", title]
        text += [
            f"  {count / total:6.1%}  {_short(place)}"
            for place, count in counter.most_common(SHOWN)
        ]
    return "\n".join(text)


def _short(place: str) -> str:
    """Return a place without the prefixes that all places share."""
    return place.replace(f"{ROOT}/", "").rsplit("site-packages/", 1)[-1]

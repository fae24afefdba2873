"""Where a relay worker's time goes during the first row, by sampling (`sampling/`)."""

from __future__ import annotations

import json
import tempfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

from tests.bench.bench import Bench
from tests.bench.measure import WARM_UP_S, connect, leave
from tests.bench.rows.throughput import FIRST_ROW
from tests.bench.targets import ROOT, TargetError

SHOWN = 30
MOST_SECONDS = 30.0


def profile(bench: Bench) -> str:
    """Run the first row once with sampling on and describe the worker's samples."""
    with tempfile.TemporaryDirectory(prefix="rmbb-") as name:
        folder = Path(name)
        sampled = replace(bench, options=replace(bench.options, profile_folder=folder))
        with sampled.relay(FIRST_ROW.twins) as ours, sampled.generators() as generators:
            workers = ours.worker_pids
            shares = connect(ours, generators, FIRST_ROW)
            generators.all("start", window=FIRST_ROW.window)
            time.sleep(WARM_UP_S)
            (folder / "on").touch()
            time.sleep(min(bench.seconds, MOST_SECONDS))
            (folder / "on").unlink()
            time.sleep(WARM_UP_S)
            generators.all("stop", timeout_s=10)
            leave(generators, shares)
        sampled_workers = [path for pid in workers if (path := folder / f"{pid}.json").exists()]
        if not sampled_workers:
            raise TargetError("no worker wrote samples: is PYTHONPATH passed on to it?")
        return "\n".join(map(_described, sampled_workers))


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
    text = [f"{total} samples of 1 ms CPU"]
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
    """A place without the folders everybody knows."""
    return place.replace(f"{ROOT}/", "").rsplit("site-packages/", 1)[-1]

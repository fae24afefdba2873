"""Stack sampler of `--profile`: Python loads this by itself when its folder is on PYTHONPATH.

Each millisecond of CPU time the interpreter's main thread notes its own stack, while the file `on`
exists in the folder BENCH_SAMPLES, and writes the counts to `<pid>.json` there from time to time.
Time spent in a C function counts for the Python line that called it. The product knows nothing of
this: the bench puts it in the environment of the relay it starts.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
from collections import Counter
from pathlib import Path
from types import FrameType

INTERVAL_S = 0.001
LOOK_EVERY = 50
"""Samples between two looks for the file `on`, and a write."""
DEEPEST_STACK = 60


def start() -> None:
    """Begin sampling in this process."""
    folder = Path(os.environ["BENCH_SAMPLES"])
    stacks: Counter[tuple[str, ...]] = Counter()
    ticks = 0
    on = False

    def sample(_: int, frame: FrameType | None) -> None:
        nonlocal ticks, on
        ticks += 1
        if ticks % LOOK_EVERY == 0:
            was_on, on = on, (folder / "on").exists()
            if was_on and (not on or ticks % (LOOK_EVERY * 20) == 0):
                write()
        if not on:
            return
        stack: list[str] = []
        while frame is not None and len(stack) < DEEPEST_STACK:
            code = frame.f_code
            stack.append(f"{code.co_filename}:{code.co_qualname}:{frame.f_lineno}")
            frame = frame.f_back
        stacks[tuple(stack)] += 1

    def write() -> None:
        counted = list(stacks.items())  # the next tick may come in the middle of this
        part = folder / f"{os.getpid()}.part"
        part.write_text(json.dumps([[list(stack), n] for stack, n in counted]))
        part.rename(folder / f"{os.getpid()}.json")

    signal.signal(signal.SIGPROF, sample)
    signal.setitimer(signal.ITIMER_PROF, INTERVAL_S, INTERVAL_S)
    # A tick after the interpreter gave its handlers back would kill the process.
    atexit.register(signal.setitimer, signal.ITIMER_PROF, 0)


if "BENCH_SAMPLES" in os.environ:
    start()
    os.register_at_fork(after_in_child=start)  # a forked child has no timer

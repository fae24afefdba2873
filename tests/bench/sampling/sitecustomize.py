"""Stack sampler of `--profile`: Python imports it if its folder is on PYTHONPATH.

While the file `on` exists in the folder BENCH_SAMPLES, the interpreter's main thread records its
own stack each millisecond of CPU time, and periodically writes the counts to `<pid>.json` there.
Time spent in a C function counts for the Python line that called it. The product does not refer to
this module: the bench puts it in the environment of the relay it starts.
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
"""Samples between two checks whether the file `on` exists; every 20th check also writes."""
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
        counted = list(stacks.items())  # a copy: the next tick may interrupt this
        part = folder / f"{os.getpid()}.part"
        part.write_text(json.dumps([[list(stack), n] for stack, n in counted]))
        part.rename(folder / f"{os.getpid()}.json")

    signal.signal(signal.SIGPROF, sample)
    signal.setitimer(signal.ITIMER_PROF, INTERVAL_S, INTERVAL_S)
    # A tick after the interpreter has restored the default handlers would kill the process.
    atexit.register(signal.setitimer, signal.ITIMER_PROF, 0)


if "BENCH_SAMPLES" in os.environ:
    start()
    os.register_at_fork(after_in_child=start)  # a forked child has no timer

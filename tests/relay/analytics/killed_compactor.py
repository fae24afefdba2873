"""Run the compactor on copies of a lake and kill it in each copy one step later than in the last.

    python -m tests.relay.analytics.killed_compactor <lake> <folder for the copies> <wall clock, s>

A step is an action that changes something outside the process: opening, renaming or removing a
file, making a folder, an fsync. The last copy is the first one in which the compactor finished.
"""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

from relay.analytics.compactor import Compactor
from relay.analytics.lake import Lake

STEPS = frozenset({"open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate"})


def main() -> None:
    template, copies, wall_s = Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3])
    for last_step in itertools.count():
        copy = copies / f"{last_step:03}"
        shutil.copytree(template, copy)
        child = os.fork()  # safe: Arrow starts threads on first use only
        if not child:
            _work(copy, last_step, wall_s)
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status):
            assert os.WEXITSTATUS(status) == 0
            return
        assert os.WTERMSIG(status) == signal.SIGKILL


def _work(folder: Path, last_step: int, wall_s: float) -> None:
    steps = itertools.count()

    def step(event: str, arguments: tuple[Any, ...]) -> None:
        inside = arguments and str(arguments[0]).startswith(str(folder))
        if ((event in STEPS and inside) or event == "fsync") and next(steps) == last_step:
            os.kill(os.getpid(), signal.SIGKILL)

    try:
        os.fsync = lambda descriptor: step("fsync", ())  # kill -9 loses nothing in the disk cache
        sys.addaudithook(step)
        run(Lake(folder), wall_s)
        os._exit(0)
    finally:
        os._exit(1)


def run(lake: Lake, wall_s: float) -> None:
    """Do all that the compactor does, once."""
    compactor = Compactor(lake, keep_days=30, segments_max_bytes=1 << 30, wall=lambda: wall_s)
    for work in (compactor.convert(), compactor.merge(), compactor.retain()):
        assert not work.trouble, work.trouble
        assert not work.unreadable, work.unreadable


if __name__ == "__main__":
    main()

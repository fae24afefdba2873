"""A run depends only on its seed, so a failed run can be repeated and examined."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

from tests.model.actions import FAULT_SETS, random_run
from tests.model.marks import ABANDONED

pytestmark = ABANDONED

SEEDS = range(10)
STEPS = 25
TIMEOUT_S = 120


def print_digests() -> None:
    """Print a line for each of a few runs, with a digest of its time, commands and Redis log."""
    for seed in SEEDS:
        for name, faults in FAULT_SETS.items():
            world = random_run(seed, STEPS, faults)
            left = repr((world.simulation.now, world.redis.commands_run, world.redis.log))
            print(seed, name, hashlib.sha256(left.encode()).hexdigest())


def test_runs_are_the_same_in_every_process() -> None:
    """Runs do not depend on hashes of text, addresses of objects or the memory of the process."""
    programs = [
        subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # logs of simulated workers about simulated faults
            text=True,
            env={**os.environ, "PYTHONHASHSEED": str(number)},
        )
        for number in (1, 2)
    ]
    first, second = (program.communicate(timeout=TIMEOUT_S)[0] for program in programs)
    assert len(first.splitlines()) == len(SEEDS) * len(FAULT_SETS)
    assert first == second


if __name__ == "__main__":
    print_digests()

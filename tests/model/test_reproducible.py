"""A run is a function of its seed, so that one that failed can be run again and looked at."""

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
    """What a few runs left in Redis, when, and by how many commands; a line for each."""
    for seed in SEEDS:
        for name, faults in FAULT_SETS.items():
            world = random_run(seed, STEPS, faults)
            left = repr((world.simulation.now, world.redis.commands_run, world.redis.log))
            print(seed, name, hashlib.sha256(left.encode()).hexdigest())


def test_runs_are_the_same_in_every_process() -> None:
    """Hashes of text, addresses of objects and the process's own memory differ between these."""
    programs = [
        subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # what simulated workers log of simulated faults
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

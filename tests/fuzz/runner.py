"""Finds fuzz targets and feeds them random inputs, each of which its number reproduces.

A module `tests/fuzz/fuzz_*.py` provides `targets()`, a list of (name, function). The function takes
a seeded `random.Random`, makes one input from it, passes it to the code, and raises if something
is wrong. Input k of target t always comes from the seed text "t:k", so a failure can be replayed by
its name and number on any machine.
"""

from __future__ import annotations

import importlib
import itertools
import pkgutil
import random
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field

import tests.fuzz

Target = Callable[[random.Random], None]

CHUNK_INPUTS = 500
CHUNK_S = 1.0  # a slow target ends its chunk after this, so that every target gets its turn
MAX_FAILURES_PER_CHUNK = 5


@dataclass(frozen=True)
class Failure:
    """One input that failed."""

    target: str
    number: int
    error: str

    @property
    def name(self) -> str:
        """Argument of `--replay` for this input."""
        return f"{self.target}:{self.number}"


@dataclass
class Tally:
    """Figures of one target: inputs, seconds and failures."""

    inputs: int = 0
    seconds: float = 0.0
    failures: list[Failure] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Add the figures of a chunk."""
        self.inputs += other.inputs
        self.seconds += other.seconds
        self.failures += other.failures


def discover() -> dict[str, Target]:
    """Return all targets of all `fuzz_*` modules, by name.

    Raises:
        ValueError: two targets have the same name.
    """
    found: dict[str, Target] = {}
    for module in pkgutil.iter_modules(tests.fuzz.__path__):
        if not module.name.startswith("fuzz_"):
            continue
        for name, target in importlib.import_module(f"tests.fuzz.{module.name}").targets():
            if name in found:
                raise ValueError(f"two fuzz targets are called {name!r}")
            found[name] = target
    return dict(sorted(found.items()))


def seeded(name: str, number: int) -> random.Random:
    """Return the random generator of input `number` of a target."""
    return random.Random(f"{name}:{number}")


def run_chunk(name: str, first: int, count: int) -> Tally:
    """Run inputs `first` to `first + count - 1` of one target, in this process."""
    target = discover()[name]
    tally = Tally()
    start = time.perf_counter()
    for number in range(first, first + count):
        try:
            target(seeded(name, number))
        except Exception:
            tally.failures.append(Failure(name, number, traceback.format_exc()))
        tally.inputs += 1
        tally.seconds = time.perf_counter() - start
        if tally.seconds > CHUNK_S or len(tally.failures) >= MAX_FAILURES_PER_CHUNK:
            break
    return tally


@dataclass
class Budget:
    """Limits of a run, which stops when it reaches either of them."""

    inputs: int
    seconds: float


def run(
    names: list[str],
    budget: Budget,
    processes: int,
    first: int,
    on_chunk: Callable[[dict[str, Tally]], None] = lambda tallies: None,
) -> dict[str, Tally]:
    """Run targets round robin over processes until the budget is spent.

    Args:
        names: names of the targets.
        budget: limits of the run.
        processes: number of processes that work at once.
        first: number of the first input of each target.
        on_chunk: called with the figures so far when chunks have ended.
    """
    tallies = {name: Tally() for name in names}
    deadline = time.monotonic() + budget.seconds
    left = budget.inputs
    with ProcessPoolExecutor(processes) as pool:
        turns = _turns(names, first)
        pending: dict[Future[Tally], tuple[str, int]] = {}
        while True:
            while left > 0 and len(pending) < 2 * processes and time.monotonic() < deadline:
                name, number = next(turns)
                count = min(CHUNK_INPUTS, left)
                left -= count
                pending[pool.submit(run_chunk, name, number, count)] = name, count
            if not pending:
                return tallies
            done, _ = wait(pending, return_when=FIRST_COMPLETED)
            for future in done:
                name, count = pending.pop(future)
                tally = future.result()
                left += count - tally.inputs  # inputs that a slow chunk did not run
                tallies[name].add(tally)
            on_chunk(tallies)


def _turns(names: list[str], first: int) -> Iterator[tuple[str, int]]:
    """Yield target and number of the first input of each chunk, target by target, without end."""
    for number in itertools.count(first, CHUNK_INPUTS):
        for name in names:
            yield name, number

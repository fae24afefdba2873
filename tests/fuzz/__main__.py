"""`make fuzz`: run every fuzz target for long, or replay one failing input.

python -m tests.fuzz --inputs 1000000
python -m tests.fuzz --replay frames.any-bytes:18223
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from tests.fuzz.runner import Budget, Tally, discover, run, seeded

FAILURES_FILE = Path("fuzz-failures.txt")


def main() -> int:
    """Run the fuzz targets, and return exit code 0 if no input failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Fuzz every target.")
    parser.add_argument("--inputs", type=int, default=1_000_000, help="in all (default 1,000,000)")
    parser.add_argument("--seconds", type=float, default=3600, help="stop after this long")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--target", action="append", help="only this one (may be repeated)")
    parser.add_argument("--list", action="store_true", help="print the targets")
    parser.add_argument("--replay", metavar="TARGET:NUMBER", help="run one input, show its error")
    options = parser.parse_args()

    targets = discover()
    if options.list:
        print("\n".join(targets))
        return 0
    if options.replay:
        name, _, number = options.replay.rpartition(":")
        if name not in targets or not number.isdigit():
            parser.error(f"--replay {options.replay}: want <target>:<number>, see --list")
        targets[name](seeded(name, int(number)))
        print(f"{options.replay} passes")
        return 0
    names = options.target or list(targets)
    for name in names:
        if name not in targets:
            parser.error(f"--target {name}: unknown, see --list")
    if not names:
        parser.error("there are no fuzz targets")

    budget = Budget(options.inputs, options.seconds)
    start = time.monotonic()
    tallies = run(names, budget, options.processes, options.first, _Progress())
    _print_table(tallies, time.monotonic() - start)
    failures = [failure for tally in tallies.values() for failure in tally.failures]
    if failures:
        with FAILURES_FILE.open("a") as file:
            file.writelines(f"{failure.name}\n" for failure in failures)
        print(f"\n{failures[0].error}\n{len(failures)} inputs failed, listed in {FAILURES_FILE}")
        print(f"replay: python -m tests.fuzz --replay {failures[0].name}")
    return 1 if failures else 0


class _Progress:
    """Prints one line of progress every few seconds."""

    EVERY_S = 5.0

    def __init__(self) -> None:
        self._start = self._last = time.monotonic()

    def __call__(self, tallies: dict[str, Tally]) -> None:
        now = time.monotonic()
        if now - self._last < self.EVERY_S:
            return
        self._last = now
        inputs = sum(tally.inputs for tally in tallies.values())
        failures = sum(len(tally.failures) for tally in tallies.values())
        elapsed = now - self._start
        print(f"{elapsed:7.0f} s {inputs:12,} inputs {inputs / elapsed:9,.0f}/s {failures} failed")


def _print_table(tallies: dict[str, Tally], elapsed_s: float) -> None:
    width = max(len(name) for name in tallies)
    print(f"{'target':{width}} {'inputs':>12} {'per s':>10} {'failed':>7}")
    for name, tally in tallies.items():
        rate = tally.inputs / tally.seconds if tally.seconds else 0
        print(f"{name:{width}} {tally.inputs:12,} {rate:10,.0f} {len(tally.failures):7}")
    inputs = sum(tally.inputs for tally in tallies.values())
    print(f"{'total':{width}} {inputs:12,} {inputs / elapsed_s:10,.0f} in {elapsed_s:.1f} s")


if __name__ == "__main__":
    sys.exit(main())

"""Measure the relay beside a bare forwarder. Exit code 1: a bound is missed or not measured."""

from __future__ import annotations

import argparse
import resource
import sys
from dataclasses import asdict
from pathlib import Path

from tests.bench import profile, report
from tests.bench.bench import Bench
from tests.bench.figures import Row
from tests.bench.generators import LoadError
from tests.bench.rows import ROWS
from tests.bench.rows.analytics import CLUSTER_EVENTS
from tests.bench.targets import RelayOptions, TargetError

QUICK_RUNS = 1
QUICK_SECONDS = 2.0


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("rows", nargs="*", metavar="row", help=f"of: {', '.join(ROWS)}")
    parser.add_argument("--runs", type=int, help=f"measurements of each target ({Bench.runs})")
    parser.add_argument("--seconds", type=float, help=f"length of each ({Bench.seconds:g})")
    parser.add_argument("--json", type=Path, help="write figures and samples to this file")
    parser.add_argument(
        "--appendonly", choices=("everysec", "always", "no"), default=RelayOptions.append_only
    )
    parser.add_argument(
        "--quick", action="store_true", help="one short run, a tenth of the sessions"
    )
    parser.add_argument("--history", action="store_true", help="keep the run in docs/bench/history")
    parser.add_argument(
        "--command", default="", help="relay to measure instead; {port} {redis} {data} filled in"
    )
    parser.add_argument(
        "--events",
        type=int,
        help=f"of analytics ({Bench.events:,}; analytics-cluster: {CLUSTER_EVENTS:,})",
    )
    parser.add_argument(
        "--minutes", type=float, default=Bench.minutes, help=f"of soak ({Bench.minutes:g})"
    )
    parser.add_argument("--events-in", type=Path, help="keep these here for the next run")
    parser.add_argument(
        "--profile",
        choices=profile.PROFILED,
        metavar="row",
        help=f"show where a worker's time goes under the load of: {', '.join(profile.PROFILED)}",
    )
    chosen = parser.parse_args()
    unknown = [name for name in chosen.rows if name not in ROWS]
    if unknown:
        parser.error(f"unknown row {unknown[0]!r}, known are: {', '.join(ROWS)}")
    return chosen


def main() -> int:
    """Run the chosen rows, then print and store their figures."""
    chosen = arguments()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))
    events = chosen.events or Bench.events
    bench = Bench(
        runs=chosen.runs or (QUICK_RUNS if chosen.quick else Bench.runs),
        seconds=chosen.seconds or (QUICK_SECONDS if chosen.quick else Bench.seconds),
        quick=chosen.quick,
        options=RelayOptions(append_only=chosen.appendonly, command=chosen.command),
        events=events // 10 if chosen.quick else events,
        events_given=bool(chosen.events),
        events_in=chosen.events_in,
        minutes=chosen.minutes,
    )
    if chosen.profile:
        print(profile.profile(bench, chosen.profile))
        return 0
    rows: list[Row] = []
    failed = False
    for name in chosen.rows or ROWS:
        try:
            row = ROWS[name](bench)
        except (LoadError, TargetError) as error:
            print(f"{name}: not measured: {error}\n", file=sys.stderr, flush=True)
            failed = True
            continue
        print(report.row_text(row), flush=True)
        rows.append(row)
    print(report.summary(rows))
    print(report.machine_text())
    content = report.document(
        rows, asdict(bench) | {"command": bool(chosen.command), "events_in": None}
    )
    if chosen.json:
        report.write(chosen.json, content)
    if chosen.history:
        report.write(report.history_path(content), content)
    return int(failed or any(row.missed for row in rows))


if __name__ == "__main__":
    sys.exit(main())

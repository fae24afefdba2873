"""`rmb_analytics check`: check that the files of events can be read."""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from argparse import ArgumentParser
from typing import Any, Final

from django.core.management.base import OutputWrapper

from relay.analytics import backlog, gaps
from relay.analytics.errors import AnalyticsError
from relay.analytics.lake import Lake

SUMMARY: Final = "check that all events can be read, and move unreadable files away"
DESCRIPTION: Final = """\
Read every file of events and print the files that cannot be read. A job that reads such a file
fails and prints its name. --repair moves these files to another folder, so that jobs skip them, and
records a gap for the delivery audit. A file with an I/O error or without permission stays.

  rmb_analytics check                 reads the metadata of each file; 3,000 files a second
  rmb_analytics check --rows          also reads all rows and compares their checksums
  rmb_analytics check --repair        moves unreadable files to events/_bad

exit code: 0 all files can be read, 1 some files cannot be read, 2 usage
"""
PROGRESS_S: Final = 1.0


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--rows", action="store_true", help="read all rows, not only the metadata")
    parser.add_argument(
        "--repair", action="store_true", help="move unreadable files to events/_bad"
    )
    parser.add_argument("--json", action="store_true", help="one JSON document")


def handle(out: OutputWrapper, options: dict[str, Any]) -> None:
    from relay.analytics import checking

    lake = Lake.configured()
    files = rows = 0
    wrong: list[dict[str, str]] = []
    left = 0
    told = time.monotonic()
    for file in checking.files(lake):
        found = checking.check(file, whole=options["rows"])
        moved = None
        if found is not None and found.broken and options["repair"]:
            try:
                moved = checking.repair(lake, file, whole=options["rows"])
            except OSError as error:
                why = f"{found.wrong}; and cannot be moved: {error.strerror or error}"
                found = dataclasses.replace(found, wrong=why)
            else:
                if moved is None:  # another process changed it since
                    found = checking.check(file, whole=options["rows"])
        if found is None:
            continue
        files += 1
        rows += found.rows
        if found.wrong:
            left += moved is None
            wrong.append(
                {"file": str(file.path), "wrong": found.wrong, "moved": str(moved or "")},
            )
        if sys.stderr.isatty() and time.monotonic() - told > PROGRESS_S:
            told = time.monotonic()
            print(f"\r{files:,} files, {rows:,} events", end="", file=sys.stderr, flush=True)
    lost = gaps.cost(gaps.read(lake.root))
    report = {
        "files": files,
        "rows": rows,
        "wrong": wrong,
        "segments_waiting": len(backlog.closed(lake)),
        "segments_unreadable": len(backlog.unreadable(lake)),
        "gaps": lost.gaps,
        "lost_in_gaps": lost._asdict(),
    }
    out.write(json.dumps(report, indent=2) if options["json"] else _text(report))
    if left:
        raise AnalyticsError(f"{left} of {files} files cannot be read")


def _text(report: dict[str, Any]) -> str:
    lines = [
        f"{each['file']}: {each['wrong']}"
        + (f"\n  moved to {each['moved']}" if each["moved"] else "")
        for each in report["wrong"]
    ]
    lines.append(f"{report['files']:,} files, {report['rows']:,} events")
    if report["segments_waiting"]:
        lines.append(f"segments that wait for the compactor: {report['segments_waiting']:,}")
    if report["segments_unreadable"]:
        lines.append(f"segments that could not be read: {report['segments_unreadable']:,}")
    if report["gaps"]:
        lost = gaps.Cost(**report["lost_in_gaps"])
        lines.append(f"gaps of recorders: {lost.gaps:,}, which lost {lost}")
    return "\n".join(lines)

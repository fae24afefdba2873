"""Publish results in a process that is killed with -9 at each line of `publishing` in turn.

    RMB_DATA__DIR=folder python -m tests.relay.analytics.publishing_cuts LAKE

After each kill, the program checks what readers get: either all of the old results or all of the
new ones. Then the next run clears up and publishes. It prints one line: the number of kills. The
processes are forks, so that hundreds of them take only seconds.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from datetime import date, datetime
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from relay.analytics.lake import Lake

DAYS = (date(2026, 3, 1), date(2026, 3, 2))


def pair_rows(period: str, version: int) -> list[dict[str, Any]]:
    """Return rows of relay_pair_hour from which their version can be read."""
    hour = datetime.fromisoformat(f"{period}T07:00:00Z")
    fields = dict(hour=hour, remote="b.example", bytes=1, p50_us=1, p95_us=1, p99_us=1, failed=0)
    return [
        {"period": period, **fields, "relay": f"{n}.example", "attempts": version}
        for n in range(version + 1)
    ]


def twin_rows(period: str, version: int) -> list[dict[str, Any]]:
    """Return rows of twin_hour, which is in files only; version 2 has none on the second day."""
    if version == 2 and period == str(DAYS[1]):
        return []
    return [{"period": period, "hour": 0, "src_twin": version}]


ROWS_OF: dict[str, Callable[[str, int], list[dict[str, Any]]]] = {
    "twin_hour": twin_rows,
    "relay_pair_hour": pair_rows,
    "protocol_hour": lambda period, version: [],
}


def write_draft(folder: Path, rows_of: Callable[[str], list[dict[str, Any]]]) -> None:
    """Write the files that Spark would have written for both days."""
    folder.mkdir(parents=True)
    for day in DAYS:
        rows = rows_of(str(day))
        if rows:
            its = folder / f"_period={day}"
            its.mkdir()
            parquet.write_table(pa.Table.from_pylist(rows), its / "part-0.parquet")
            (its / ".part-0.parquet.crc").touch()


def main() -> None:
    """Publish and kill as the module's docstring describes."""
    import django

    django.setup()
    from django.apps import apps
    from django.db import connection, connections

    with connection.schema_editor() as editor:
        for model in apps.get_app_config("relay_analytics").get_models():
            editor.create_model(model)
    lake = Lake(Path(sys.argv[1]))
    publish(lake, 1)
    lines = _lines_of(lambda: publish(lake, 2))
    cuts = sorted({line: n for n, line in enumerate(lines)}.values())
    old = 2
    for cut in cuts:
        new = 3 - old
        connections.close_all()
        child = os.fork()
        if child == 0:
            _kill_at(cut)
            publish(lake, new)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, (cut, status)
        shown = _shown(lake)
        assert shown in ([old, old], [new, old], [new, new]), (lines[cut], shown)
        publish(lake, new)
        assert _shown(lake) == [new, new]
        _nothing_left(lake)
        old = new
    print(len(cuts))


def publish(lake: Lake, version: int) -> None:
    """Run the job, without the part that Spark does."""
    from relay.analytics import ledger, publishing
    from relay.analytics.models import RunState
    from relay.analytics.spark.catalogue import JOBS
    from relay.analytics.spark.window import Window

    publishing.KEEP_S = 0  # type: ignore[misc]
    job = JOBS["rollup"]
    with ledger.claimed(job, lake):
        publishing.sweep(job, lake)
        run = ledger.begin(job, Window(*DAYS), "local")
        for table in job.tables:
            rows_of = ROWS_OF[table.name]
            write_draft(
                publishing.draft(lake, table, run), lambda day, rows=rows_of: rows(day, version)
            )
        computed = [
            ledger.Period(str(day), Window(day, day), (), f"v{version}", ledger.Standing.MISSING)
            for day in DAYS
        ]
        publishing.publish(job, run, computed, lake)
        ledger.end(run, RunState.DONE)
        publishing.sweep(job, lake)


def _shown(lake: Lake) -> list[int]:
    """Return the version of each day that readers see, and check that all they see is of it."""
    from relay.analytics import ledger
    from relay.analytics.models import Published
    from relay.analytics.models.results import RelayPairHour

    found = []
    for day in map(str, DAYS):
        rows = list(Published.objects.filter(period=day))
        marks = {row.fingerprint for row in rows}
        assert (
            len(rows) == len(ROWS_OF) and len(marks) == 1 and len({row.run_id for row in rows}) == 1
        )
        version = int(marks.pop().removeprefix("v"))
        for row in rows:
            files = ledger.result_files(lake, row.table, day, day)
            got = [each for file in files for each in parquet.read_table(file).to_pylist()]
            wanted = ROWS_OF[row.table](day, version)
            assert len(got) == row.result_rows == len(wanted)
            if row.table == "relay_pair_hour":
                rows = RelayPairHour.objects.filter(period=day)
                in_database = sorted(rows.values_list("relay", "attempts"))
                assert in_database == sorted((each["relay"], each["attempts"]) for each in wanted)
        found.append(version)
    return found


def _nothing_left(lake: Lake) -> None:
    """Check that the disk has only what the ledger names, and that no run counts as running."""
    from relay.analytics.models import Published, Run, RunState

    named = set(Published.objects.exclude(folder="").values_list("folder", flat=True))
    there = {str(path.parent.relative_to(lake.results)) for path in lake.results.rglob("*.parquet")}
    assert there == named, (there, named)
    assert not list(lake.results.rglob("_tmp-*"))
    assert not Run.objects.filter(state=RunState.RUNNING).exists()


def _lines_of(work: Callable[[], None]) -> list[int]:
    """Return the numbers of the lines of `publishing` that are executed, in order."""
    lines: list[int] = []
    _trace(lines.append)
    work()
    sys.settrace(None)
    return lines


def _kill_at(cut: int) -> None:
    seen = iter(range(cut))

    def count(_: int) -> None:
        if next(seen, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)

    _trace(count)


def _trace(each_line: Callable[[int], object]) -> None:
    from relay.analytics import publishing

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        if frame.f_code.co_filename != publishing.__file__:
            return None
        if event == "line":
            each_line(frame.f_lineno)
        return trace

    sys.settrace(trace)


if __name__ == "__main__":
    main()

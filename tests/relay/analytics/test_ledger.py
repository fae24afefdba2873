"""Which periods are due, and why."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from django.utils import timezone
from pyarrow import parquet

from relay.analytics import footers, gaps, ledger, merging
from relay.analytics.errors import AnalyticsError
from relay.analytics.gaps import Gap, Why
from relay.analytics.lake import Lake
from relay.analytics.models import Published, Run, RunState
from relay.analytics.spark import schema
from relay.analytics.spark.catalogue import JOBS, Job
from relay.analytics.spark.window import Window
from tests.relay.analytics import rows
from tests.relay.analytics.rows import FIRST, HOUR, midnight

pytestmark = pytest.mark.django_db

DAYS = Window(FIRST, FIRST + timedelta(days=2))
TOP = JOBS["top"]
"""A job without margins."""


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Return a lake of three days with a message at noon each."""
    for day in DAYS.days():
        rows.write(
            tmp_path / "events", rows.message(midnight(day) + 12 * HOUR, uid=day.toordinal())
        )
    return Lake(tmp_path)


def late(lake: Lake, day: int, hour: int = 3) -> None:
    moment = midnight(DAYS.days()[day]) + hour * HOUR
    rows.write(lake.events, [rows.accepted(moment, 99)], name="late")


def several(lake: Lake, day: date, count: int, *, name: str = "part") -> None:
    """Write this number of events of a day, in one hour."""
    moment = midnight(day) + HOUR
    rows.write(lake.events, [rows.accepted(moment, n) for n in range(count)], name=name)


def standings(lake: Lake, job: Job = TOP, window: Window = DAYS, *, again: bool = False) -> str:
    """Return one letter for the standing of each period."""
    found = ledger.periods(job, window, lake, again=again)
    return "".join(period.standing.value[0] for period in found)


def computed(lake: Lake, job: Job = TOP, window: Window = DAYS) -> None:
    """Record results as after a run in which every period has no rows."""
    run = ledger.begin(job, window, "local")
    for period in ledger.periods(job, window, lake):
        for table in job.tables:
            Published.objects.update_or_create(
                table=table.name,
                period=period.name,
                defaults={
                    "run": run,
                    "fingerprint": period.fingerprint,
                    "folder": "",
                    "result_rows": 0,
                    "size_bytes": 0,
                    "event_rows": footers.rows(period.files),
                    "day_rows": footers.rows_by_day(period.files),
                    "published_at": timezone.now(),
                },
            )


def test_each_day_is_computed_once(lake: Lake) -> None:
    assert standings(lake) == "mmm"
    computed(lake)
    assert standings(lake) == "ccc"
    assert standings(lake, again=True) == "ooo"


def test_a_late_file_makes_its_day_due(lake: Lake) -> None:
    computed(lake)
    late(lake, day=1)
    assert standings(lake) == "coc"


def test_margins_count(lake: Lake) -> None:
    """A late file makes neighbouring days due: the matrix looks a day back, an hour ahead."""
    matrix = JOBS["matrix"]
    computed(lake, matrix)
    late(lake, day=1, hour=0)
    assert standings(lake, matrix) == "ooo"
    computed(lake, matrix)
    late(lake, day=1, hour=1)
    assert standings(lake, matrix) == "coo"


def test_days_without_events_are_left_out(lake: Lake) -> None:
    later = Window(DAYS.last + timedelta(days=1), DAYS.last + timedelta(days=2))
    assert standings(lake, window=later) == "ee"


def test_merging_files_changes_nothing(lake: Lake) -> None:
    late(lake, day=1, hour=12)
    computed(lake)
    assert merging.merge(lake, DAYS.days()[1], 12) is not None
    assert len(lake.files(*(DAYS.days()[1],) * 2)) == 1
    assert standings(lake) == "ccc"


def test_what_was_made_of_deleted_events_is_kept(lake: Lake) -> None:
    late(lake, day=0)
    computed(lake)
    lake.files(DAYS.first, DAYS.first)[0].path.unlink()
    assert standings(lake) == "kcc"
    for file in lake.files(DAYS.first, DAYS.first):
        file.path.unlink()
    assert standings(lake) == "kcc"
    assert standings(lake, again=True) == "koo"


def test_a_month_goes_on_while_busier_days_before_it_are_deleted(tmp_path: Path) -> None:
    lake, usage = Lake(tmp_path), JOBS["usage"]
    february = [date(2026, 2, 1) + timedelta(days=n) for n in range(28)]
    march = [date(2026, 3, 1) + timedelta(days=n) for n in range(31)]
    for day in february:
        several(lake, day, 30)
    found = ""
    for number, day in enumerate(march):
        several(lake, day, 10)
        for old in february[: max(number - 13, 0)]:  # 42 days are kept
            shutil.rmtree(lake.events / f"date={old}", ignore_errors=True)
        found += standings(lake, usage, Window(day, day))
        computed(lake, usage, Window(day, day))
    assert found == "m" + 30 * "o"
    shutil.rmtree(lake.events / f"date={february[17]}")
    assert standings(lake, usage, Window(day, day)) == "k"


def test_a_month_goes_on_after_a_file_of_it_was_lost(tmp_path: Path) -> None:
    lake, usage = Lake(tmp_path), JOBS["usage"]
    first, second, third = (date(2026, 3, n) for n in (1, 2, 3))
    several(lake, first, 1)
    several(lake, second, 100)
    several(lake, second, 1, name="other")
    computed(lake, usage, Window(second, second))
    (lake.hour(second, 1) / "part.parquet").unlink()
    assert standings(lake, usage, Window(second, second)) == "k"
    several(lake, third, 2)
    assert standings(lake, usage, Window(second, second)) == "o"


def test_a_month_whose_own_days_are_deleted_is_kept_whatever_comes(tmp_path: Path) -> None:
    lake, usage = Lake(tmp_path), JOBS["usage"]
    days = [date(2026, 3, n) for n in (1, 2, 3)]
    for day in days:
        several(lake, day, 5)
    computed(lake, usage, Window(days[0], days[0]))
    shutil.rmtree(lake.events / f"date={days[0]}")
    several(lake, days[2], 50, name="late")
    assert standings(lake, usage, Window(days[0], days[0])) == "k"


def test_results_of_a_release_that_noted_no_days_are_compared_as_a_whole(lake: Lake) -> None:
    late(lake, day=0)
    computed(lake)
    Published.objects.update(day_rows={})
    late(lake, day=1)
    lake.files(DAYS.first, DAYS.first)[0].path.unlink()
    assert standings(lake) == "koc"


def test_a_later_version_of_a_job_makes_all_due(lake: Lake) -> None:
    computed(lake)
    assert standings(lake, replace(TOP, version=TOP.version + 1)) == "ooo"


def test_a_table_that_a_job_did_not_have_before_makes_all_due(lake: Lake) -> None:
    computed(lake)
    Published.objects.filter(table=TOP.tables[1].name).delete()
    assert standings(lake) == "mmm"


def test_results_that_somebody_deleted_are_computed_again(lake: Lake) -> None:
    computed(lake)
    Published.objects.filter(period=DAYS.last).update(folder="top_twins/2026-03-29/gone")
    assert standings(lake) == "ccm"


def test_a_gap_makes_the_days_due_whose_audit_it_touches(lake: Lake) -> None:
    audit = JOBS["audit"]
    computed(lake, audit)
    moment = midnight(DAYS.days()[2]) + HOUR
    gaps.write(lake.root, Gap("r", "w", moment, moment + 1, 1, Why.KILLED))
    assert standings(lake, audit) == "coo"


def test_a_month_is_one_period(lake: Lake) -> None:
    usage = JOBS["usage"]
    found = ledger.periods(usage, Window(DAYS.first, DAYS.last + timedelta(days=9)), lake)
    assert [period.name for period in found] == ["2026-03", "2026-04"]
    assert found[0].window.days()[-1].day == 31
    assert [len(period.files) for period in found] == [3, 3]


def broken(lake: Lake) -> Path:
    path = lake.hour(DAYS.first, 5) / "broken.parquet"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"PAR1 and then nothing")
    return path


def later_version(lake: Lake) -> Path:
    path = lake.hour(DAYS.first, 5) / "later.parquet"
    path.parent.mkdir(parents=True)
    told = {schema.VERSION_KEY: str(schema.VERSION + 1)}
    parquet.write_table(pa.table({"uid": [1]}).replace_schema_metadata(told), path)
    return path


@pytest.mark.parametrize(
    ("made", "says"), [(broken, "cannot be read"), (later_version, "of version 3 of the schema")]
)
def test_a_file_that_cannot_be_used_is_named(lake: Lake, made: object, says: str) -> None:
    path = made(lake)  # type: ignore[operator]
    with pytest.raises(AnalyticsError, match=f"{path} .*{says}"):
        footers.rows(lake.files(DAYS.first, DAYS.last))


def test_the_ledger_and_spark_know_one_version_of_the_schema() -> None:
    assert schema.VERSION == footers.VERSION
    assert schema.VERSION_KEY.encode() == footers.VERSION_KEY


def test_one_process_computes_a_job_at_a_time(lake: Lake) -> None:
    lake.cache.mkdir(parents=True)
    program = (
        "import fcntl, os, sys; file = open(sys.argv[1], 'a'); fcntl.flock(file, fcntl.LOCK_EX); "
        "file.write(str(os.getpid())); file.flush(); print(flush=True); sys.stdin.read()"
    )
    command: Sequence[str] = (sys.executable, "-c", program, str(lake.cache / "top.lock"))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with (
            pytest.raises(AnalyticsError, match=f"by process {other.pid}$"),
            ledger.claimed(TOP, lake),
        ):
            pass
        with ledger.claimed(JOBS["usage"], lake):
            pass
        other.kill()
    with ledger.claimed(TOP, lake):
        pass


def test_a_run_whose_process_was_killed_is_noted(lake: Lake) -> None:
    run, other = ledger.begin(TOP, DAYS, "local"), ledger.begin(JOBS["usage"], DAYS, "local")
    with ledger.claimed(TOP, lake):
        run.refresh_from_db()
        assert (run.state, run.error) == (RunState.FAILED, "the process was killed")
    assert Run.objects.get(pk=other.pk).state == RunState.RUNNING


def test_a_long_name_of_a_master_is_noted_in_part() -> None:
    """A long name is truncated: PostgreSQL accepts no more characters than the column has."""
    name = f"k8s://https://{'x' * 300}"
    run = ledger.begin(TOP, DAYS, name)
    assert name.startswith(run.master) and len(run.master) == 255

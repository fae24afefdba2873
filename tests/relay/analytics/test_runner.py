"""Jobs run through the ledger and Spark, up to the results that readers see."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.core.management.base import CommandError
from django.test import Client
from pyarrow import parquet
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.captured import convert_exception
from pyspark.sql import SparkSession

from relay.analytics import engine as engine_module
from relay.analytics import footers, ledger, progress, runner
from relay.analytics.engine import Engine, first_line
from relay.analytics.errors import AnalyticsError, NoEngine
from relay.analytics.lake import Lake
from relay.analytics.models import Published, Run, RunState
from relay.analytics.models.results import RelayPairHour, TopTwin
from relay.analytics.progress import Progress
from relay.analytics.spark import session
from relay.analytics.spark.catalogue import JOBS
from relay.analytics.spark.java import JavaError
from relay.analytics.spark.window import Window
from tests.relay.analytics import rows
from tests.relay.analytics.comparing import events
from tests.relay.analytics.rows import FIRST, HOUR, midnight
from tests.relay.analytics.test_plain_paths import NASTY
from tests.relay.analytics.test_progress import Terminal
from tests.support.relay_process import migrated_folder

pytestmark = pytest.mark.django_db

DAYS = Window(FIRST, FIRST + timedelta(days=2))
QUIET = Progress(quiet=True)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Return a lake of three days: two with messages and an empty one between them."""
    for day in (DAYS.first, DAYS.last):
        rows.write(tmp_path / "events", rows.ordinary(midnight(day), messages=60))
    return Lake(tmp_path)


@pytest.fixture
def engine(lake: Lake, spark: SparkSession) -> Engine:
    return Engine(lake, session=spark)


@pytest.fixture
def no_engine(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """Return an engine whose Spark must not be started."""

    def refuse(self: Engine) -> SparkSession:
        raise AssertionError("Spark is started for nothing")

    monkeypatch.setattr(Engine, "_open", refuse)
    return Engine(lake)


def run(name: str, lake: Lake, engine: Engine, window: Window = DAYS) -> runner.Outcome:
    return runner.run(JOBS[name], window, lake, engine, QUIET)


def in_files(lake: Lake, table: str) -> list[dict[str, Any]]:
    files = ledger.result_files(lake, table)
    return [row for file in files for row in parquet.read_table(file).to_pylist()]


def test_results_are_those_of_the_job(lake: Lake, engine: Engine, spark: SparkSession) -> None:
    outcome = run("rollup", lake, engine)
    assert (outcome.computed, outcome.current, outcome.empty) == (2, 0, 1)
    for table in JOBS["rollup"].tables:
        module = table.load()
        made = module.transform(events(spark, lake.events), DAYS).select(*module.SCHEMA.names)
        found = spark.read.parquet(*map(str, ledger.result_files(lake, table.name)))
        assert made.count() > 0
        assert made.exceptAll(found.select(*module.SCHEMA.names)).count() == 0
        assert found.count() == made.count()
    pairs = {
        (row["hour"], row["relay"], row["remote"], row["attempts"], row["p95_us"])
        for row in in_files(lake, "relay_pair_hour")
    }
    columns = ("hour", "relay", "remote", "attempts", "p95_us")
    assert set(RelayPairHour.objects.values_list(*columns)) == pairs
    files = ledger.result_files(lake, "twin_hour")
    assert [file.parent.parent.name for file in files] == [str(DAYS.first), str(DAYS.last)]


def test_running_again_changes_nothing_and_starts_nothing(
    lake: Lake, engine: Engine, no_engine: Engine
) -> None:
    run("top", lake, engine)
    before = list(Published.objects.values_list("table", "period", "run", "published_at"))
    outcome = run("top", lake, no_engine)
    assert (outcome.computed, outcome.current, outcome.run) == (0, 2, "")
    assert list(Published.objects.values_list("table", "period", "run", "published_at")) == before
    assert Run.objects.count() == 1


def test_a_late_file_replaces_its_day_only(lake: Lake, engine: Engine) -> None:
    run("top", lake, engine)
    first = Published.objects.get(table="top_twins", period=DAYS.first)
    late = [rows.accepted(midnight(DAYS.last) + HOUR, 99, src=4711, size=2**40)]
    rows.write(lake.events, late, name="late")
    outcome = run("top", lake, engine)
    assert (outcome.computed, outcome.current) == (1, 1)
    assert Published.objects.get(table="top_twins", period=DAYS.first) == first
    assert TopTwin.objects.get(period=DAYS.last, place=1).twin == 4711
    assert not TopTwin.objects.filter(period=DAYS.first, twin=4711).exists()


def test_a_job_that_fails_leaves_what_there_was(lake: Lake, engine: Engine) -> None:
    """A failing job keeps the old results; here only Spark finds the torn rows of a file."""
    run("top", lake, engine)
    before = in_files(lake, "top_twins")
    rows.write(lake.events, rows.ordinary(midnight(DAYS.last), messages=60), name="torn")
    torn = max(
        (file.path for file in lake.files(DAYS.last, DAYS.last) if file.path.stem == "torn"),
        key=lambda path: path.stat().st_size,
    )
    whole = torn.read_bytes()
    torn.write_bytes(whole[:4] + b"\xff" * 200 + whole[204:])
    with pytest.raises(AnalyticsError, match=torn.name):
        run("top", lake, engine)
    assert in_files(lake, "top_twins") == before
    assert TopTwin.objects.count() == len(before)
    latest = Run.objects.all()[0]
    assert latest.state == RunState.FAILED and torn.name in latest.error
    torn.write_bytes(whole)
    assert run("top", lake, engine).computed == 1
    assert len(list((lake.results / "top_twins").rglob("_tmp-*"))) == 0


def test_files_are_named_when_two_stages_fail_at_once(spark: SparkSession) -> None:
    java = spark._jvm
    assert java is not None
    failures = java.java.util.ArrayList()
    for name in ("torn", "other"):
        failures.add(java.org.apache.spark.SparkException(f"[FAILED_READ_FILE] {name}.parquet"))
    several = java.scala.jdk.javaapi.CollectionConverters.asScala(failures).toSeq()
    spoken = java.org.apache.spark.sql.errors.QueryExecutionErrors
    error = convert_exception(spoken.multiFailuresInStageMaterializationError(several))
    assert first_line(error) == "SparkException: [FAILED_READ_FILE] torn.parquet"


def test_a_python_worker_says_why_it_failed(spark: SparkSession) -> None:
    def fail(rows: Iterator[Any]) -> Iterator[Any]:
        raise ValueError("twin 7 has no row")
        yield from rows

    with pytest.raises(PySparkException) as raised:
        spark.range(2).mapInArrow(fail, "id long").collect()
    told = first_line(raised.value)
    assert told == "a Python worker failed: ValueError: twin 7 has no row"


def test_the_folder_may_have_any_name(tmp_path: Path) -> None:
    """The real command with its own Java works there, even in a locale limited to ASCII."""
    lake = Lake(tmp_path / NASTY)
    rows.write(lake.events, rows.message(midnight(FIRST), 1))
    shutil.copytree(lake.root, tmp_path / "da ta a{c,d}xx#%20 ö=:\\")
    shutil.copytree(migrated_folder(), tmp_path / "data")
    environment = {
        **os.environ,
        "LC_ALL": "C",
        "TMPDIR": str(tmp_path),
        "RMB_DATA__DIR": str(tmp_path / "data"),
        "RMB_ANALYTICS__DIR": str(lake.root),
        "RMB_ANALYTICS__MASTER": "local[1]",
        "DJANGO_SETTINGS_MODULE": "rmbsite.settings",
    }
    done = subprocess.run(
        [
            *(sys.executable, "-m", "django", "rmb_analytics", "run", "top"),
            *("--from", str(FIRST), "--to", str(FIRST), "--quiet"),
        ],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert (done.stderr, done.returncode) == ("", 0)
    assert done.stdout == "top          1 computed, 2 rows\n"


def test_only_few_events_on_this_machine_have_java_compile_quickly(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen: list[bool] = []

    def refuse(*_: Any, small: bool, **__: Any) -> SparkSession:
        chosen.append(small)
        raise JavaError("not started")

    def opened(span: tuple[datetime, datetime] | None, master: str = "local[2]") -> bool:
        engine = Engine(lake, master, span=span)
        with pytest.raises(NoEngine, match="not started"):
            engine.open()
        engine.close()
        return chosen[-1]

    monkeypatch.setattr(session, "open_session", refuse)
    days = JOBS["audit"].span(DAYS)
    assert opened(days)
    assert not opened(None)
    assert not opened(days, "spark://127.0.0.1:7077")
    of_last = footers.rows(lake.files(DAYS.last, DAYS.last))
    monkeypatch.setattr(engine_module, "FEW_ROWS", of_last)
    assert not opened(days)
    last = JOBS["top"].span(Window(DAYS.last, DAYS.last + timedelta(days=9)))
    assert opened(last)
    broken = lake.hour(DAYS.last, 3) / "broken.parquet"
    broken.parent.mkdir(exist_ok=True)
    broken.write_bytes(b"PAR1 no more PAR1")
    assert not opened(last), "the job that reads it says so"


def test_periods_are_computed_together_when_next_to_each_other(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = ledger.periods(JOBS["anomalies"], Window(DAYS.first, FIRST + timedelta(days=9)), lake)
    together = [[period.name[-2:] for period in chunk] for chunk in runner.chunks(found)]
    assert together == [["27", "28", "29", "30", "31", "01", "02", "03", "04", "05"]]
    apart = [[period.name[-2:] for period in chunk] for chunk in runner.chunks(found[::2])]
    assert apart == [["27"], ["29"], ["31"], ["02"], ["04"]]
    monkeypatch.setattr(runner, "MOST_ROWS", 1)
    assert [len(chunk) for chunk in runner.chunks(found[:3])] == [1, 1, 1]
    once = footers.rows({file for period in found for file in period.files})
    assert once < sum(footers.rows(period.files) for period in found), "margins overlap"
    monkeypatch.setattr(runner, "MOST_ROWS", once)
    assert len(list(runner.chunks(found))) == 1


def command(*arguments: str) -> str:
    out = io.StringIO()
    call_command("rmb_analytics", *arguments, stdout=out)
    return out.getvalue()


@pytest.fixture
def configured(
    lake: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> Lake:
    """Make the commands use this lake and this Spark session."""
    chosen = dataclasses.replace(settings.RMB.analytics, dir=str(lake.root))
    settings.RMB = dataclasses.replace(settings.RMB, analytics=chosen)
    monkeypatch.setattr(Engine, "_open", lambda self: spark)
    monkeypatch.setattr(Engine, "close", lambda self: None)
    return lake


def test_the_commands(configured: Lake, capsys: pytest.CaptureFixture[str], settings: Any) -> None:
    days = ("--from", str(DAYS.first), "--to", str(DAYS.last))
    (outcome,) = json.loads(command("run", "top", *days, "--json"))
    assert (outcome["job"], outcome["computed"], outcome["empty"]) == ("top", 2, 1)
    looking, starting, opening, *steps = capsys.readouterr().err.splitlines()
    assert looking == "top: looking for days to compute"
    assert starting == f"starting Spark at {settings.RMB.analytics.master}"
    assert re.fullmatch(r"top: opening files of events \(\d+\)", opening)
    assert steps[0].startswith("top top_twins   2026-03-27 to 2026-03-27   done in")
    assert command("run", "top", *days) == "top          2 up to date; 1 without events\n"
    told = json.loads(command("status", "--json"))
    (top,) = (job for job in told["jobs"] if job["job"] == "top")
    assert (top["current"], top["missing"], top["due"]) == (2, 0, [])
    (rollup,) = (job for job in told["jobs"] if job["job"] == "rollup")
    assert (rollup["missing"], rollup["empty"]) == (2, 1)
    assert [entry["state"] for entry in told["runs"]] == ["done"]
    lines = command("status").splitlines()
    assert lines[3].split() == ["rollup", "0", "2", "0", "0", "1", "2026-03-27,", "2026-03-29"]
    told = command("backfill", "top", "matrix", "--quiet").splitlines()
    assert told[0] == "top          2 up to date; 1 without events"
    assert told[1].startswith("matrix       3 computed")  # the empty day may still get late events


@pytest.mark.usefixtures("no_redis")
def test_pages_and_queries_show_what_a_job_published(configured: Lake) -> None:
    command("run", "top", "--from", str(DAYS.last), "--to", str(DAYS.last), "--quiet")
    client = Client()
    client.force_login(User.objects.create_superuser("owner"))
    page = client.get("/console/analytics/busiest/?t-export=json&t-limit=100")
    shown = [(row["place"], row["twin"], row["bytes"]) for row in json.loads(page.getvalue())]
    asked = json.loads(command("sql", "--json", "SELECT place, twin, bytes FROM top_twins"))
    assert shown and shown == sorted(tuple(row.values()) for row in asked)
    text = client.get("/console/analytics/runs/").content.decode()
    assert f">{DAYS.last}<" in text and "/console/analytics/runs/" in text


def test_what_is_wrong_is_said_in_a_line(configured: Lake, tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="is not a job"):
        command("backfill", "nonsense")
    with pytest.raises(CommandError, match="is before"):
        command("run", "top", "--from", "2026-03-02", "--to", "2026-03-01")
    (tmp_path / "events").rename(tmp_path / "elsewhere")
    with pytest.raises(CommandError, match=r"there are no events in .*generate"):
        command("run", "top")
    assert command("status").startswith("there are no events yet")


def test_what_is_done_every_day_computes_the_days_before(
    configured: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The schedule looks at the days before, here without events, at a low priority."""
    kind: list[int] = []
    monkeypatch.setattr("os.nice", kind.append)
    outcomes = json.loads(command("schedule", "--now", "--quiet", "--json"))
    assert {outcome["job"]: outcome["empty"] for outcome in outcomes}["audit"] == 3
    assert sum(outcome["computed"] for outcome in outcomes) == 0
    assert kind and kind[0] > 0
    assert json.loads(command("schedule", "--json"))["last"] is None


def test_one_job_that_fails_does_not_hold_up_the_others(
    configured: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []

    def run_job(job: Any, *arguments: Any, **options: Any) -> runner.Outcome:
        if job.name == "top":
            raise AnalyticsError("top: its disk is full")
        done.append(job.name)
        return runner.Outcome(job.name, "", 0, 0, 1, 0, 0)

    monkeypatch.setattr(runner, "run", run_job)
    with pytest.raises(CommandError, match=r"^top: its disk is full$"):
        command("run", "all", "--quiet")
    assert done == [name for name in JOBS if name != "top"]


@pytest.mark.parametrize("verb", [("run", "all"), ("backfill",), ("schedule", "--now")])
def test_all_jobs_of_a_run_share_one_session(
    configured: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, verb: tuple[str, ...]
) -> None:
    opened: list[str] = []

    def open_session(self: Engine) -> SparkSession:
        opened.append(self.master)
        return spark

    def run_job(job: Any, window: Any, lake: Any, engine: Engine, *_: Any, **__: Any) -> Any:
        done.append((job.name, engine.session))
        return runner.Outcome(job.name, "", 0, 0, 1, 0, 0)

    done: list[tuple[str, SparkSession]] = []
    monkeypatch.setattr(os, "nice", lambda by: 0)
    monkeypatch.setattr(Engine, "_open", open_session)
    monkeypatch.setattr(runner, "run", run_job)
    command(*verb, "--quiet")
    assert done == [(name, spark) for name in JOBS]
    assert len(opened) == 1


def test_a_job_somebody_else_computes_is_left_to_him(
    configured: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that another process computes is skipped, with an exit code of its own."""
    monkeypatch.setattr(ledger, "CLAIM_S", 0)
    with (
        ledger.claimed(JOBS["top"], configured),
        pytest.raises(
            CommandError, match=f"^top is being computed by process {os.getpid()}$"
        ) as it,
    ):
        command("run", "top", "--from", str(DAYS.first), "--quiet", "--wait", "0")
    assert it.value.returncode == 75
    assert not Run.objects.exists()


def test_a_run_whose_process_is_gone_does_not_run_for_ever(configured: Lake) -> None:
    """A run whose process has ended is noted as failed.

    A run of another installation with this database is not changed: it has no lock here.
    """
    with ledger.claimed(JOBS["top"], configured):
        ledger.begin(JOBS["top"], DAYS, "local")
        ledger.begin(JOBS["audit"], DAYS, "local")
        ledger.note_killed(configured)
        assert {run.state for run in Run.objects.all()} == {RunState.RUNNING}
    ledger.note_killed(configured)
    states = dict(Run.objects.values_list("job", "state"))
    assert states == {"top": RunState.FAILED, "audit": RunState.RUNNING}


def test_without_spark_it_says_what_to_install(
    configured: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(self: Engine) -> SparkSession:
        raise ModuleNotFoundError("No module named 'pyspark'", name="pyspark")

    monkeypatch.setattr(Engine, "_open", missing)
    with pytest.raises(CommandError, match="pyspark is not installed: make setup-analytics"):
        command("run", "top", "--from", str(DAYS.first), "--quiet")
    assert Run.objects.get().state == RunState.FAILED


def test_progress_is_told_by_spark(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "EVERY_S", 0.01)
    terminal = Terminal()
    with Progress(terminal).step(spark, "a step"):
        spark.range(0, 3_000_000, numPartitions=8).selectExpr("sum(id % 7)").collect()
        assert progress.fraction(spark, "a step") > 0
    shown = terminal.getvalue()
    assert re.search(r"\ra step   \[#*-*\] +\d+%   0:0\d ", shown)
    assert re.search(r"\r\x1b\[Ka step   done in \d+:\d\d\n$", shown)

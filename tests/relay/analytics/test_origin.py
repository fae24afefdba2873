"""A database holds the results of exactly one lake."""

from __future__ import annotations

import dataclasses
import json
import threading
from datetime import date
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from relay.analytics import ledger, origin, publishing, runner, streaming
from relay.analytics.errors import AnalyticsError
from relay.analytics.lake import Lake
from relay.analytics.models import Origin, Run, RunState
from relay.analytics.origin import AnotherLake
from relay.analytics.progress import Progress
from relay.analytics.spark.catalogue import JOBS
from relay.analytics.spark.window import Window
from relay.ops.doctor import recorded
from tests.relay.analytics import rows
from tests.relay.analytics.rows import HOUR, midnight

pytestmark = pytest.mark.django_db

DAY = date(2026, 3, 1)
TOP = JOBS["top"]


@pytest.fixture
def first(tmp_path: Path) -> Lake:
    """Return the lake that the results come from."""
    lake = with_events(tmp_path / "first")
    origin.claim(lake)
    return lake


@pytest.fixture
def second(first: Lake, tmp_path: Path, settings: Any) -> Lake:
    """Return another lake, for which this host is configured."""
    lake = with_events(tmp_path / "second")
    chosen = dataclasses.replace(settings.RMB.analytics, dir=str(lake.root), record=True)
    settings.RMB = dataclasses.replace(settings.RMB, analytics=chosen)
    return lake


def with_events(folder: Path) -> Lake:
    rows.write(folder / "events", rows.message(midnight(DAY) + HOUR, uid=1))
    return Lake(folder)


def command(*arguments: str) -> str:
    out = StringIO()
    call_command("rmb_analytics", *arguments, stdout=out)
    return out.getvalue()


def test_the_first_is_the_one_wherever_it_moves(first: Lake, tmp_path: Path) -> None:
    origin.claim(first)
    assert origin.another(first) is None
    moved = Lake(tmp_path / "moved")
    first.root.rename(moved.root)
    origin.claim(moved)
    assert origin.another(moved) is None


def test_no_run_nor_stream_of_another_lake_begins(second: Lake) -> None:
    with pytest.raises(
        CommandError, match=r"are from another lake, .*/first .* rmb_analytics takeov"
    ):
        command("run", "top", "--from", str(DAY), "--to", str(DAY))
    with pytest.raises(AnotherLake):
        streaming.stream(second, engine=None, every_s=None)  # type: ignore[arg-type]
    with pytest.raises(AnotherLake):
        runner.run(TOP, Window(DAY, DAY), second, engine=None, progress=None)  # type: ignore[arg-type]
    assert not Run.objects.exists()


def test_a_lake_without_events_takes_no_other_the_place(tmp_path: Path) -> None:
    runner.run(TOP, Window(DAY, DAY), Lake(tmp_path), None, Progress(quiet=True))  # type: ignore[arg-type]
    assert not Origin.objects.exists()


def test_runs_of_another_lake_are_not_noted_as_killed(first: Lake, second: Lake) -> None:
    with ledger.claimed(TOP, first):
        mine = ledger.begin(TOP, Window(DAY, DAY), "local")
        (second.cache).mkdir()
        (second.cache / f"{TOP.name}.lock").touch()
        ledger.note_killed(second)
        with pytest.raises(AnotherLake), ledger.claimed(TOP, second):
            pass
    mine.refresh_from_db()
    assert mine.state == RunState.RUNNING


def test_a_lake_that_took_over_is_the_one(first: Lake, second: Lake) -> None:
    run = ledger.begin(TOP, Window(DAY, DAY), "local")
    found = ledger.periods(TOP, Window(DAY, DAY), first)
    told = json.loads(command("takeover", "--json"))
    assert told["lake"] == str(second.root)
    assert told["before"].startswith(str(first.root))
    assert "already from" in command("takeover")
    with ledger.claimed(TOP, second):
        pass
    with pytest.raises(AnotherLake):
        publishing.publish(TOP, run, found, first)
    with pytest.raises(AnotherLake):
        origin.claim(first)


def test_it_is_told(second: Lake, first: Lake) -> None:
    assert json.loads(command("status", "--json"))["another_lake"].startswith(str(first.root))
    assert f"the results are from another lake, {first.root}" in command("status")
    codes = [finding.check for finding in recorded.lake()]
    assert "analytics.lake" in codes
    command("takeover")
    assert json.loads(command("status", "--json"))["another_lake"] is None
    assert "analytics.lake" not in [finding.check for finding in recorded.lake()]


def test_a_lake_that_lost_its_id_is_another_one(first: Lake) -> None:
    (first.root / origin.FILE).unlink()
    with pytest.raises(AnotherLake):
        origin.claim(first)
    (first.root / origin.FILE).write_text("nothing\n")
    with pytest.raises(AnalyticsError, match="has no id of a lake in it"):
        origin.another(first)


def test_of_many_who_give_a_lake_its_id_one_is_right(tmp_path: Path) -> None:
    lake, barrier = Lake(tmp_path), threading.Barrier(8)
    found: list[str] = []

    def give() -> None:
        barrier.wait()
        found.append(origin._write(lake))

    threads = [threading.Thread(target=give) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8 and len(set(found)) == 1
    assert [path.name for path in tmp_path.iterdir()] == [origin.FILE]

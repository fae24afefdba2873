"""Readers see whole results, either the old or the new ones, whatever happens meanwhile."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from datetime import date, timedelta
from pathlib import Path

import pytest
from django.utils import timezone

from relay.analytics import ledger, publishing
from relay.analytics.errors import AnalyticsError
from relay.analytics.lake import Lake
from relay.analytics.ledger import Period, Standing
from relay.analytics.models import Published, Run
from relay.analytics.models.results import RelayPairHour
from relay.analytics.spark.catalogue import JOBS
from relay.analytics.spark.window import Window
from tests.relay.analytics.publishing_cuts import DAYS, pair_rows, twin_rows, write_draft
from tests.support.waiting import wait_until

ROLLUP = JOBS["rollup"]
PERIODS = [Period(str(day), Window(day, day), (), "mark", Standing.MISSING) for day in DAYS]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def published(lake: Lake, version: int) -> Run:
    run = ledger.begin(ROLLUP, Window(*DAYS), "local")
    twin_hour, pair_hour, _ = ROLLUP.tables
    write_draft(publishing.draft(lake, twin_hour, run), lambda day: twin_rows(day, version))
    write_draft(publishing.draft(lake, pair_hour, run), lambda day: pair_rows(day, version))
    publishing.publish(ROLLUP, run, PERIODS, lake)
    return run


def test_killed_at_any_line_readers_have_the_old_or_the_new(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.relay.analytics.publishing_cuts", str(tmp_path / "lake")],
        env={
            **os.environ,
            "RMB_DATA__DIR": str(tmp_path),
            "DJANGO_SETTINGS_MODULE": "rmbsite.settings",
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 60


@pytest.mark.django_db
def test_what_is_published_is_in_files_and_in_the_database(lake: Lake) -> None:
    run = published(lake, 1)
    assert (run.periods, run.result_rows) == (2, 6)
    assert [file.parent.name for file in ledger.result_files(lake, "twin_hour")] == [run.name] * 2
    assert RelayPairHour.objects.count() == 4
    assert RelayPairHour.objects.values_list("hour", flat=True)[0].hour == 7


@pytest.mark.django_db
def test_a_period_without_rows_counts_as_computed(lake: Lake) -> None:
    published(lake, 2)
    assert Published.objects.get(table="twin_hour", period=DAYS[1]).folder == ""
    assert len(ledger.result_files(lake, "twin_hour")) == 1


@pytest.mark.django_db
def test_a_replaced_folder_stays_while_it_may_be_read(lake: Lake) -> None:
    published(lake, 1)
    being_read = ledger.result_files(lake, "relay_pair_hour")
    published(lake, 2)
    publishing.sweep(ROLLUP, lake)
    assert all(file.exists() for file in being_read)
    long_ago = timezone.now() - timedelta(seconds=publishing.KEEP_S + 1)
    Published.objects.update(published_at=long_ago)
    publishing.sweep(ROLLUP, lake)
    assert not any(file.exists() for file in being_read)
    assert all(file.exists() for file in ledger.result_files(lake, "relay_pair_hour"))


@pytest.mark.django_db
def test_a_draft_that_is_still_written_does_not_stop_the_next_run(lake: Lake) -> None:
    """A run starts although the Java of a killed driver still writes a draft for a second."""
    run = ledger.begin(ROLLUP, Window(*DAYS), "local")
    draft = publishing.draft(lake, ROLLUP.tables[0], run)
    ended = threading.Event()

    def write() -> None:
        number = 0
        while not ended.is_set():
            # Both can occur if the folder is removed at this moment: `mkdir` checks twice.
            with contextlib.suppress(FileNotFoundError, FileExistsError):
                draft.mkdir(parents=True, exist_ok=True)
                (draft / f"part-{number}").touch()
            number += 1

    java = threading.Thread(target=write)
    java.start()
    try:
        for _ in range(50):
            wait_until(draft.exists)
            publishing.sweep(ROLLUP, lake)
    finally:
        ended.set()
        java.join()
    publishing.sweep(ROLLUP, lake)
    assert not draft.exists()


@pytest.mark.django_db
def test_rows_of_a_day_nobody_asked_for_are_refused(lake: Lake) -> None:
    run = ledger.begin(ROLLUP, Window(*DAYS), "local")
    for table in ROLLUP.tables:
        publishing.draft(lake, table, run).mkdir(parents=True)
    (publishing.draft(lake, ROLLUP.tables[0], run) / "_period=2026-03-09").mkdir()
    with pytest.raises(AnalyticsError, match="twin_hour has rows of _period=2026-03-09"):
        publishing.publish(ROLLUP, run, PERIODS, lake)
    assert not Published.objects.exists()


@pytest.mark.django_db
def test_the_ledger_finds_results_by_period(lake: Lake) -> None:
    published(lake, 1)
    found = ledger.result_files(lake, "twin_hour", str(DAYS[1]))
    assert [file.parent.parent.name for file in found] == [str(DAYS[1])]
    found = ledger.result_files(lake, "twin_hour", until=str(DAYS[0]))
    assert [file.parent.parent.name for file in found] == [str(DAYS[0])]
    assert ledger.result_files(lake, "twin_hour", str(date.max)) == []

"""The catalogue of jobs: names, keys, and the days that each job reads."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, date, datetime

import pytest

from relay.analytics.spark.catalogue import JOBS, table, tables
from relay.analytics.spark.window import Window

DAY = Window(date(2026, 3, 29), date(2026, 3, 29))


def test_names_are_used_once_and_rows_are_told_apart_within_a_period() -> None:
    names = [found.name for found in tables()]
    assert len(names) == len(set(names))
    assert all(found.keys[0] == "period" for found in tables())
    assert table("usage").keys == ("period", "twin")
    with pytest.raises(KeyError):
        table("nothing")


def test_a_job_of_days_reads_its_days_and_margins() -> None:
    assert JOBS["rollup"].span(DAY) == (
        datetime(2026, 3, 29, tzinfo=UTC),
        datetime(2026, 3, 30, tzinfo=UTC),
    )
    assert JOBS["matrix"].span(DAY) == (
        datetime(2026, 3, 28, tzinfo=UTC),
        datetime(2026, 3, 30, 1, tzinfo=UTC),
    )
    assert JOBS["rollup"].periods(Window(date(2024, 2, 28), date(2024, 3, 1))) == [
        "2024-02-28",
        "2024-02-29",
        "2024-03-01",
    ]


@pytest.mark.parametrize(
    ("window", "whole"),
    [
        (DAY, Window(date(2026, 3, 1), date(2026, 3, 31))),
        (
            Window(date(2023, 12, 31), date(2024, 2, 1)),
            Window(date(2023, 12, 1), date(2024, 2, 29)),
        ),
    ],
)
def test_a_job_of_months_takes_whole_months(window: Window, whole: Window) -> None:
    assert JOBS["usage"].whole(window) == whole
    assert JOBS["usage"].periods(window) == window.months()


def test_the_catalogue_is_read_without_spark() -> None:
    program = "import sys, relay.analytics.spark.catalogue; assert 'pyspark' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)

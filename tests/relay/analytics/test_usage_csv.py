"""The CSV file from which usage is billed."""

from __future__ import annotations

import csv

import pytest

from relay.analytics import usage_csv
from relay.analytics.spark.jobs import usage

MARCH = [
    ("2026-03", 0, 1, 100, 1, 100, 0, 0),
    ("2026-03", 2**32 - 1, 2**40, 2**62, 3, 2**53 + 1, 5, 31 * 86400),
]


def test_the_last_line_counts_and_adds_up() -> None:
    assert list(usage_csv.lines(MARCH)) == [
        "period,twin,accepted,accepted_bytes,delivered,delivered_bytes,dropped,session_seconds\n",
        "2026-03,0,1,100,1,100,0,0\n",
        f"2026-03,4294967295,{2**40},{2**62},3,{2**53 + 1},5,2678400\n",
        f"all,2,{2**40 + 1},{2**62 + 100},4,{2**53 + 101},5,2678400\n",
    ]


def test_a_month_of_nothing_has_its_last_line() -> None:
    read = list(csv.DictReader(usage_csv.lines([])))
    assert [row["period"] for row in read] == ["all"]
    assert {value for name, value in read[0].items() if name != "period"} == {"0"}


def test_its_columns_are_those_of_the_job() -> None:
    assert list(usage_csv.COLUMNS) == usage.SCHEMA.names


@pytest.mark.parametrize(
    "rows", [MARCH[::-1], [MARCH[0], MARCH[0]], [MARCH[0], ("2026-04", *MARCH[1][1:])]]
)
def test_rows_out_of_order_are_refused(rows: list[tuple[str | int, ...]]) -> None:
    with pytest.raises(ValueError, match="after"):
        list(usage_csv.lines(rows))

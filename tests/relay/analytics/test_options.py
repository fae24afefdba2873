"""Invalid options of any kind end in a one-line error."""

from __future__ import annotations

import argparse
from datetime import UTC, date, datetime
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from relay.analytics import days, places
from relay.analytics.commands import stream
from relay.analytics.places import Places
from tests.relay.analytics import rows
from tests.relay.analytics.rows import HOUR, midnight

HUGE = "9" * 30
NOW = datetime(2026, 11, 22, 8, 30, tzinfo=UTC)
BESIDE = ["-1", "0.5", "nan", "inf", HUGE, "9" * 5000, "\N{ARABIC-INDIC DIGIT ONE}", ""]


@pytest.fixture(autouse=True)
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Places:
    monkeypatch.setattr(places, "configured", lambda: Places(tmp_path))
    day = date(2026, 3, 1)
    rows.write(tmp_path / "events", [rows.accepted(midnight(day) + HOUR, 1)])
    monkeypatch.setattr(days, "now", lambda: NOW)
    return Places(tmp_path)


def command(*arguments: str) -> str:
    out = StringIO()
    call_command("rmb_analytics", *arguments, stdout=out)
    return out.getvalue()


@pytest.mark.parametrize("value", BESIDE)
@pytest.mark.parametrize("option", ["status --runs", "sql SELECT --limit"])
def test_numbers(option: str, value: str) -> None:
    *words, name = option.split()
    with pytest.raises(CommandError, match=r"must be a whole number from \d"):
        command(*words, f"{name}={value}")


@pytest.mark.parametrize("value", ["-1", "0", "4001", "99999999999", HUGE, "nan"])
@pytest.mark.parametrize("more", [(), ("--from", "2026-03-01")])
def test_days_of_a_history(tmp_path: Path, value: str, more: tuple[str, ...]) -> None:
    with pytest.raises(CommandError, match=r"days must be from 1 to 4,000|--days: invalid int"):
        command("generate", f"--days={value}", "--out", str(tmp_path / "out"), *more)


@pytest.mark.parametrize("day", ["0001-01-01", "1969-12-31", "3000-01-01", "9999-12-31"])
@pytest.mark.parametrize("verb", ["run top", "backfill", "generate --rows 1k --days 1"])
def test_days_that_nobody_means(verb: str, day: str) -> None:
    with pytest.raises(CommandError, match="invalid day"):
        command(*verb.split(), "--from", day)


@pytest.mark.django_db
@pytest.mark.parametrize("day", ["1970-01-01", "2026-11-22"])
def test_the_first_and_the_last_day(day: str) -> None:
    """Jobs run on the first and the last accepted day without leaving the range of dates."""
    assert "1 without events" in command("run", "all", "--from", day, "--to", day)


@pytest.mark.parametrize(
    ("text", "hour"),
    [
        ("2026-11-21T14", 14),
        ("2026-11-21T14:00Z", 14),
        ("2026-11-21T14:00+02:00", 12),
        ("2026-11-21T14:00-05:30", 19),
    ],
)
def test_the_hour_a_stream_begins_with(text: str, hour: int) -> None:
    found = stream._hour(text)
    assert found.replace(minute=0) == datetime(2026, 11, 21, hour, tzinfo=UTC)
    assert found.tzinfo == UTC


@pytest.mark.parametrize(
    ("option", "day"),
    [
        ("--from", "2026-11-23"),
        ("--from", "2027-01-01"),
        ("--to", "2026-12-01"),
        ("--to", "2026-12"),
    ],
)
@pytest.mark.parametrize("verb", ["run top", "backfill"])
def test_days_to_come(verb: str, option: str, day: str) -> None:
    with pytest.raises(CommandError, match=r"is in the future; the latest day is 2026-11-(22|30)"):
        command(*verb.split(), option, day)


@pytest.mark.django_db
def test_this_month_as_a_whole() -> None:
    assert "30 without events" in command("run", "top", "--from", "2026-11", "--to", "2026-11")


def test_hours_to_come() -> None:
    assert stream._hour("2026-11-22T08") <= NOW
    for text in ("2026-11-22T09", "2030-01-01", "2026-11-22T08:00-05:00"):
        with pytest.raises(argparse.ArgumentTypeError, match="latest hour is 2026-11-22T08"):
            stream._hour(text)


@pytest.mark.parametrize(
    "text", ["0001-01-01T00+14:00", "9999-12-31T23-14:00", "1969-12-31T23", "x"]
)
def test_hours_that_nobody_means(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is not an hour"):
        stream._hour(text)

"""The stream's sums in SQLite and PostgreSQL: each batch counts once."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from relay.analytics import sink
from relay.analytics.models import LiveMinute
from tests.support.in_database import Use, in_database
from tests.support.postgres_server import PostgresServer
from tests.support.relay_process import migrated_folder

NOW = datetime(2026, 11, 21, 14, 30, 20, tzinfo=UTC)
HOUR = NOW.replace(minute=0, second=0)


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the URL of a database that has its tables."""
    if request.param == "postgresql":
        server: PostgresServer = request.getfixturevalue("postgres_server")
        return server.make_migrated_database("sink")
    folder = tmp_path_factory.mktemp("sink")
    shutil.copy(migrated_folder() / "relay.sqlite3", folder / "sink.sqlite3")
    return f"sqlite:///{folder}/sink.sqlite3"


@pytest.fixture
def use(url: str, tmp_path: Path, django_db_blocker: Any) -> Iterator[Use]:
    """Yield a function that makes a thread use the database.

    The database is empty, and in use in the current thread.
    """
    with django_db_blocker.unblock(), in_database(url, tmp_path) as here:
        yield here
        sink.begin(HOUR, NOW, keep=False).delete()


def row(minutes: int, n: int = 1, **others: Any) -> dict[str, Any]:
    """Return sums of the minute that begins this many minutes after HOUR."""
    minute_us = round((HOUR + timedelta(minutes=minutes)).timestamp()) * 1_000_000
    return {
        "minute_us": minute_us,
        "relay": "a.example",
        "kind": "delivered",
        "reason": "none",
        "remote": "",
        "n": n,
        "size_bytes": 100 * n,
        "latency_us": 7 * n,
        "late": 0,
        "newest_us": minute_us + 59_000_000,
        **others,
    }


def counted() -> dict[tuple[int, str], int]:
    """Return the number of events by minute after HOUR and remote."""
    return {
        (round((each.minute - HOUR).total_seconds()) // 60, each.remote): each.n
        for each in LiveMinute.objects.all()
    }


def test_sums_of_a_minute_add_up(use: Use) -> None:
    stream = sink.begin(HOUR, NOW, keep=False).checkpoint
    assert sink.apply(stream, 0, [row(1, 3, late=1), row(2), row(2, remote="b.example")], NOW)
    assert sink.apply(stream, 1, [row(1, 4, late=1)], NOW)
    assert counted() == {(1, ""): 7, (2, ""): 1, (2, "b.example"): 1}
    minute = LiveMinute.objects.get(minute=HOUR + timedelta(minutes=1))
    assert (minute.size_bytes, minute.latency_us, minute.late) == (700, 49, 2)


def test_a_batch_that_comes_again_counts_once(use: Use) -> None:
    stream = sink.begin(HOUR, NOW, keep=False).checkpoint
    assert sink.apply(stream, 0, [row(1, 3)], NOW)
    assert not sink.apply(stream, 0, [row(1, 3)], NOW)
    assert counted() == {(1, ""): 3}
    state = sink.state()
    assert state is not None
    assert (state.batch, state.events) == (0, 3)
    assert state.newest == HOUR + timedelta(minutes=1, seconds=59)
    assert state.watermark == HOUR + timedelta(seconds=-1)


def test_a_batch_that_comes_twice_at_once_counts_once(use: Use) -> None:
    stream = sink.begin(HOUR, NOW, keep=False).checkpoint
    together = threading.Barrier(4)
    answers: list[bool] = []

    def apply() -> None:
        use()
        together.wait()
        answers.append(sink.apply(stream, 0, [row(1, 3), row(2)], NOW))

    threads = [threading.Thread(target=apply) for _ in range(together.parties)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [False, False, False, True]
    assert counted() == {(1, ""): 3, (2, ""): 1}


def test_a_batch_that_breaks_off_leaves_nothing(use: Use) -> None:
    stream = sink.begin(HOUR, NOW, keep=False).checkpoint

    def sums() -> Iterator[dict[str, Any]]:
        yield row(1)
        raise ConnectionError("away")

    with pytest.raises(ConnectionError):
        sink.apply(stream, 0, sums(), NOW)
    with pytest.raises(TypeError):
        sink.apply(stream, 0, [row(1), row(2, n=None)], NOW)
    assert counted() == {}
    assert sink.apply(stream, 0, [row(1)], NOW)


def test_who_was_replaced_counts_nothing_more(use: Use) -> None:
    old = sink.begin(HOUR, NOW, keep=False).checkpoint
    new = sink.begin(HOUR, NOW, keep=False).checkpoint
    assert old != new
    with pytest.raises(sink.TakenOver):
        sink.apply(old, 0, [row(1)], NOW)
    with pytest.raises(sink.TakenOver):
        sink.beat(old, NOW)
    assert counted() == {}


def test_another_checkpoint_takes_away_only_what_it_brings(use: Use) -> None:
    first = sink.begin(HOUR, NOW, keep=False)
    sink.apply(first.checkpoint, 0, [row(59), row(60), row(61)], NOW)
    hour = timedelta(hours=1)
    second = sink.begin(HOUR + hour, NOW + hour, keep=True)
    assert counted() == {(59, ""): 1}
    assert (second.since, second.counts_from, second.batch) == (HOUR, HOUR + hour, -1)
    third = sink.begin(HOUR + hour, NOW + hour, keep=False)
    assert counted() == {}
    assert third.since == HOUR + hour


def test_old_minutes_go_and_a_clock_that_runs_ahead_takes_none_along(use: Use) -> None:
    stream = sink.begin(HOUR, NOW, keep=False).checkpoint
    days = 24 * 60
    sink.apply(stream, 0, [row(0), row(1), row(2), row(3 * days), row(900 * days)], NOW)
    sink.beat(stream, NOW)
    assert len(counted()) == 5
    sink.beat(stream, HOUR + timedelta(days=3, minutes=1, seconds=30))
    assert min(counted()) == (1, "")
    state = sink.state()
    assert state is not None and state.since == HOUR + timedelta(minutes=1)

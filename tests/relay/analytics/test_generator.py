"""The synthetic history contains the anomalies that it reports, and its seed reproduces it.

The tests compare the results of queries with the truth file, so that jobs can be checked against
that file.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest

from relay.analytics.generator import GeneratorError, Options, Truth, generate
from relay.analytics.spark import schema

OPTIONS = Options(
    first=date(2026, 3, 1),
    days=8,
    rows=20_000,
    twins=2_000,
    relays=3,
    lost=2_000,
    doubled=5_000,
    bursts=2,
    storms=4,
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Truth]:
    folder = tmp_path_factory.mktemp("lake")
    return folder, generate(folder, OPTIONS)


def _ask(folder: Path, question: str) -> list[tuple[Any, ...]]:
    with duckdb.connect(config={"threads": "1", "memory_limit": "500MB"}) as connection:
        files = (
            f"read_parquet('{folder}/events/*/*/*.parquet', hive_partitioning = true, "
            "hive_types_autocast = false)"
        )
        connection.execute(f"CREATE VIEW events AS SELECT * FROM {files}")
        return connection.execute(question).fetchall()


def test_it_is_as_large_as_wanted_and_each_row_lies_in_its_hour(made: tuple[Path, Truth]) -> None:
    folder, truth = made
    assert sum(truth.rows.values()) == pytest.approx(OPTIONS.rows, rel=0.05)
    assert dict(_ask(folder, "SELECT kind, count(*) FROM events GROUP BY kind")) == {
        kind: count for kind, count in truth.rows.items() if count
    }
    hour_of = "strftime(event_time AT TIME ZONE 'UTC', '%Y-%m-%d %H')"
    assert _ask(folder, f"SELECT * FROM events WHERE {hour_of} <> date || ' ' || hour") == []


def test_every_file_has_the_schema_and_its_version(made: tuple[Path, Truth]) -> None:
    folder, truth = made
    files = sorted(folder.rglob("*.parquet"))
    assert len(files) == truth.files == OPTIONS.hours
    for file in files[:3]:
        read = pq.read_schema(file)
        assert read.names == schema.EVENTS.names
        assert read.metadata[schema.VERSION_KEY.encode()] == str(schema.VERSION).encode()


def test_the_messages_without_outcome_are_the_lost_and_the_last(made: tuple[Path, Truth]) -> None:
    folder, truth = made
    pending = _ask(
        folder,
        "SELECT uid, max(event_time) >= (SELECT max(event_time) FROM events) - INTERVAL 1 HOUR "
        "FROM events WHERE kind IN ('accepted', 'delivered', 'dropped') "
        "GROUP BY uid HAVING count(*) = 1 AND any_value(kind) = 'accepted'",
    )
    assert truth.lost
    assert sorted(uid for uid, recent in pending if not recent) == truth.lost
    assert sum(recent for _, recent in pending) == truth.in_flight


def test_the_messages_that_come_twice_are_told(made: tuple[Path, Truth]) -> None:
    folder, truth = made
    question = "SELECT uid FROM events WHERE kind = 'delivered' GROUP BY uid HAVING count(*) > 1"
    assert truth.doubled
    assert sorted(uid for (uid,) in _ask(folder, question)) == truth.doubled


def test_the_bursts_are_where_they_are_told(made: tuple[Path, Truth]) -> None:
    folder, truth = made
    found = _ask(
        folder,
        "SELECT src_twin, epoch_us(event_time) // 3600000000 * 3600000000, count(*) "
        "FROM events WHERE kind = 'accepted' GROUP BY ALL",
    )
    counts = {(twin, hour): count for twin, hour, count in found}
    assert len(truth.bursts) == 2
    for twin, hour, messages in truth.bursts:
        assert counts[twin, hour] >= messages
        assert sum(counts.get((twin, hour - n * 3_600_000_000), 0) for n in range(1, 169)) < 20


def test_the_storms_are_what_is_told(made: tuple[Path, Truth]) -> None:
    folder, truth = made
    found = _ask(
        folder,
        "SELECT src_twin, src_session, epoch_us(min(event_time)), epoch_us(max(event_time)), "
        "count(*) FROM events WHERE kind = 'session_open' AND src_session = 'agent' GROUP BY ALL",
    )
    assert len(truth.storms) == OPTIONS.storms
    assert sorted(found) == sorted(truth.storms)


def test_the_bad_relay_is_the_one_that_fails(made: tuple[Path, Truth]) -> None:
    folder, truth = made
    question = (
        "SELECT DISTINCT remote FROM events WHERE kind = 'federated_out' AND reason <> 'none'"
    )
    assert _ask(folder, question) == [(truth.bad_relay,)]


def test_the_same_seed_makes_the_same_files_and_another_does_not(
    tmp_path: Path, made: tuple[Path, Truth]
) -> None:
    short = replace(OPTIONS, days=1, rows=2_000)
    first, again, other = tmp_path / "first", tmp_path / "again", tmp_path / "other"
    assert generate(first, short) == generate(again, short)
    truth = generate(other, replace(short, seed=2))
    files = [path.relative_to(first) for path in sorted(first.rglob("*.*"))]
    assert len(files) == 25
    assert all((first / name).read_bytes() == (again / name).read_bytes() for name in files)
    assert truth.bursts == []  # one day is too short for a baseline
    assert json.loads((other / "generated.json").read_text())["lost"] != made[1].lost


def test_it_mixes_with_no_other_history(made: tuple[Path, Truth]) -> None:
    with pytest.raises(GeneratorError, match="already; choose another folder"):
        generate(made[0], OPTIONS)


@pytest.mark.parametrize(("name", "value"), [("rows", 1), ("days", 0), ("twins", 1)])
def test_options_out_of_bounds_are_named(name: str, value: int) -> None:
    with pytest.raises(GeneratorError, match=f"{name} must be from"):
        replace(OPTIONS, **{name: value})


def test_one_relay_alone_sends_nothing_on(tmp_path: Path) -> None:
    truth = generate(tmp_path, replace(OPTIONS, days=1, rows=1_000, relays=1))
    assert truth.bad_relay == ""
    assert truth.rows["federated_out"] == truth.rows["federated_in"] == 0
    assert truth.rows["delivered"] > 0

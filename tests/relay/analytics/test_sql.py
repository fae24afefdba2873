"""`rmb_analytics sql` answers questions about events and results, and does nothing else."""

from __future__ import annotations

import csv
import io
import json
import shutil
import tempfile
from datetime import UTC, date, datetime
from io import StringIO
from pathlib import Path

import pyarrow as pa
import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from pyarrow import parquet

from relay.analytics import places
from relay.analytics.lake import Lake
from tests.relay.analytics.test_plain_paths import NASTY
from tests.support.analytics_results import publish

pytestmark = pytest.mark.django_db


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    monkeypatch.setattr(places, "configured", lambda: places.Places(tmp_path))
    return Lake(tmp_path)


@pytest.fixture
def filled(lake: Lake) -> Lake:
    """Return a lake with three events on two days, and the usage of a month."""
    for day, hour, kinds in ((2, 23, ["accepted"]), (3, 0, ["delivered", "dropped"])):
        at = datetime(2026, 11, day, hour, 30, tzinfo=UTC)
        folder = lake.hour(at.date(), hour)
        folder.mkdir(parents=True)
        table = pa.table(
            {
                "event_time": pa.array([at] * len(kinds), pa.timestamp("us", "UTC")),
                "kind": kinds,
                "src_twin": [7] * len(kinds),
                "reason": ["none", "=1+1"][-len(kinds) :],
            }
        )
        parquet.write_table(table, folder / "a-0-1.parquet")
        (folder / "_tmp-b-0-1").write_bytes(b"half")
    folder = lake.results / "usage" / "2026-11" / "run"
    folder.mkdir(parents=True)
    rows = pa.table({"period": ["2026-11"] * 3, "twin": [7, 8, 9], "accepted": [5, 60, 700]})
    parquet.write_table(rows, folder / "part.parquet")
    publish("usage", "2026-11", folder="usage/2026-11/run")
    return lake


@pytest.mark.parametrize(
    ("name", "sibling"), [("[ab]", "a"), ("x*", "xy"), ("q?", "qq"), ("it's", "its"), (NASTY, "a")]
)
def test_the_folder_may_have_any_name(
    filled: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, sibling: str
) -> None:
    """The answers exclude the events of a sibling folder that the name would match as a pattern."""
    for folder in (tmp_path / name, tmp_path / sibling):
        for part in ("events", "results"):
            shutil.copytree(tmp_path / part, folder / part)
    monkeypatch.setattr(places, "configured", lambda: places.Places(tmp_path / name))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert ask("SELECT count(*) AS n FROM events", csv=True) == "n\n3\n"
    assert ask("SELECT count(*) AS n FROM usage", csv=True) == "n\n3\n"


def ask(question: str, **options: object) -> str:
    out = StringIO()
    call_command("rmb_analytics", "sql", question, stdout=out, **options)
    return out.getvalue()


@pytest.mark.usefixtures("filled")
def test_answers_as_table_json_and_csv() -> None:
    question = "SELECT twin, accepted FROM usage ORDER BY twin"
    assert ask(question).splitlines() == [
        "twin  accepted",
        "----  --------",
        "   7         5",
        "   8        60",
        "   9       700",
    ]
    assert "more than 1 rows" in ask(question, limit=1)
    assert json.loads(ask(question, json=True))[2] == {"twin": 9, "accepted": 700}
    assert json.loads(ask(f"{question} LIMIT 0", json=True)) == []
    lines = list(csv.reader(io.StringIO(ask("SELECT reason, event_time FROM events", csv=True))))
    assert lines[0] == ["reason", "event_time"]
    assert ["'=1+1", "2026-11-03 00:30:00+00:00"] in lines[1:], "no formula, and UTC"


@pytest.mark.usefixtures("filled")
def test_events_have_their_day_and_hour_and_lack_what_files_lack() -> None:
    found = json.loads(
        ask("SELECT date, hour, count(*) n FROM events GROUP BY ALL ORDER BY date", json=True)
    )
    assert [(row["date"], row["hour"], row["n"]) for row in found] == [
        ("2026-11-02", 23, 1),
        ("2026-11-03", 0, 2),
    ]


@pytest.mark.usefixtures("filled")
def test_events_and_results_of_earlier_releases_are_of_rmb(lake: Lake) -> None:
    sbd = {"event_time": [datetime(2026, 11, 3, tzinfo=UTC)], "protocol": ["sbd"], "src_key": ["k"]}
    asked = "SELECT protocol, src_key, count(*) AS n FROM events GROUP BY ALL ORDER BY n"
    assert json.loads(ask(asked, json=True)) == [{"protocol": "rmb", "src_key": None, "n": 3}]
    parquet.write_table(pa.table(sbd), lake.hour(date(2026, 11, 3), 0) / "b-0-1.parquet")
    assert [(row["protocol"], row["n"]) for row in json.loads(ask(asked, json=True))] == [
        ("sbd", 1),
        ("rmb", 3),
    ]
    for day, more in (("2026-11-02", {}), ("2026-11-03", {"protocol": ["sbd"]})):
        folder = lake.results / "sessions" / day / "run"
        folder.mkdir(parents=True)
        parquet.write_table(pa.table({"period": [day], "uid": [1], **more}), folder / "a.parquet")
        publish("sessions", day, folder=f"sessions/{day}/run")
    found = json.loads(ask("SELECT protocol FROM sessions ORDER BY period", json=True))
    assert found == [{"protocol": "rmb"}, {"protocol": "sbd"}]


def test_results_of_earlier_releases_have_the_names_of_today(lake: Lake) -> None:
    for day, names in (("2026-11-02", ("x", "med", "mad")), ("2026-11-03", NAMES)):
        folder = lake.results / "anomalies" / day / "run"
        folder.mkdir(parents=True)
        columns = {"period": [day], "twin": [7], **dict(zip(names, ([50], [3], [1]), strict=True))}
        parquet.write_table(pa.table(columns), folder / "part.parquet")
        publish("anomalies", day, folder=f"anomalies/{day}/run")
        found = json.loads(ask("FROM anomalies ORDER BY period", json=True))
        assert list(found[0]) == ["period", "twin", *NAMES, "protocol"]
        assert [found[-1][name] for name in ("period", *NAMES)] == [day, 50, 3, 1]
    assert found[0] == {**found[1], "period": "2026-11-02"}


NAMES = ("accepted", "median", "deviation")
NARROW = [
    *("  event_time, kind, src_twin, reason,", "  date, hour, protocol, src_key,"),
    *("  dst_key, link, contract, operation,", "  host_id, answer_bytes"),
]


@pytest.mark.usefixtures("filled")
def test_without_a_question_the_views_are_told() -> None:
    lines = ask("").splitlines()
    at = lines.index("usage")
    assert lines[at - 1 : at + 2] == ["", "usage", "  period, twin, accepted"]
    assert any("event_time" in line for line in lines)


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize(
    ("columns", "events"),
    [
        (
            "80",
            [
                "  event_time, kind, src_twin, reason, date, hour, protocol, src_key, dst_key,",
                "  link, contract, operation, host_id, answer_bytes",
            ],
        ),
        ("40", NARROW),
        ("1", NARROW),
    ],
)
def test_views_are_as_wide_as_the_terminal(
    monkeypatch: pytest.MonkeyPatch, columns: str, events: list[str]
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert ask("").splitlines() == ["events", *events, "", "usage", "  period, twin, accepted"]


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize(
    ("question", "told"),
    [
        ("DELETE FROM usage", "only SELECT is answered, not DELETE"),
        ("COPY usage TO 'x.csv'", "only SELECT is answered, not COPY"),
        ("EXPLAIN ANALYZE COPY usage TO 'x.csv'", "only SELECT is answered, not COPY"),
        ("EXPLAIN/**/CREATE TABLE x(a int)", "only SELECT is answered, not CREATE"),
        ("explain (analyze) COPY usage TO 'x.csv'", "only SELECT is answered, not COPY"),
        ("EXPLAIN ANALYZE (FORMAT json) COPY (SELECT 1) TO 'x'", "COPY|syntax error"),
        ("EXPLAIN EXPLAIN SELECT 1", "syntax error"),
        ("EXPLAIN", "syntax error"),
        ("SELECT error('for once') FROM usage", "for once"),
        ("SELECT 1; SELECT 2", "one question at a time"),
        ("SET memory_limit = '1TB'", "only SELECT"),
        ("SELECT * FROM read_text('/etc/hostname')", "file system operations are disabled"),
        ("SELECT * FROM read_csv('https://example.org/x.csv')", "disabled"),
        ("SELECT nothing FROM usage", "nothing"),
        ("SELEC 1", "syntax error"),
        ("SELECT * FROM storms", "storms is not computed yet: rmb_analytics run sessions"),
    ],
)
def test_what_is_not_answered(question: str, told: str) -> None:
    with pytest.raises(CommandError, match=told):
        ask(question)


@pytest.mark.usefixtures("filled")
def test_plans_and_memory() -> None:
    for explain in (
        "EXPLAIN SELECT * FROM usage",
        "EXPLAIN/**/SELECT * FROM usage",
        "/* é */ EXPLAIN -- é\n SELECT * FROM usage",
        "explain analyse (SELECT * FROM usage)",
        "EXPLAIN (FORMAT json) SELECT * FROM usage",
        "EXPLAIN(analyze, format json)(SELECT * FROM usage WHERE twin <> length(')'))",
    ):
        assert "READ_PARQUET" in ask(explain, csv=True).upper(), explain
    with pytest.raises(CommandError, match="Memory"):
        ask("SELECT 1", memory="much")


def test_without_anything(lake: Lake) -> None:
    with pytest.raises(CommandError, match="neither events nor results"):
        ask("SELECT 1")


def test_a_file_that_is_damaged_is_named(filled: Lake) -> None:
    path = next(filled.events.rglob("*.parquet"))
    path.write_bytes(b"PAR1")
    with pytest.raises(CommandError, match=path.name):
        ask("SELECT count(*) FROM events")

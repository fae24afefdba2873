"""`manage.py rmb_audit`: listing, verifying and exporting a log, even a manipulated one."""

from __future__ import annotations

import csv
import json
from datetime import timedelta
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.utils import timezone

from relay.access.actor import SYSTEM, Actor, Face
from relay.audit import services, triggers
from relay.audit.models import AuditEntry

pytestmark = pytest.mark.django_db

TABLE = AuditEntry._meta.db_table


def run(*arguments: str) -> str:
    out = StringIO()
    call_command("rmb_audit", *arguments, stdout=out, stderr=StringIO())
    return out.getvalue()


@pytest.fixture
def log() -> list[AuditEntry]:
    """Record six changes by three actors."""
    for number, name in enumerate(("olga", "olga/rmb_1", "otto") * 2, 1):
        actor = Actor(name, Face.REST, "192.0.2.1", None)
        action = "ban.set" if number % 2 else "limit.set"
        with services.change(actor, action, target=f"={number}") as change:
            change.after = {"number": number}
    return list(AuditEntry.objects.order_by("number"))


def tamper(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        assert cursor.rowcount > 0


def test_verify(log: list[AuditEntry]) -> None:
    head = f"6:{log[-1].hash}"
    assert run("verify") == f"6 entries, nothing was changed\nhead {head}\n"
    assert json.loads(run("verify", "--json", "--head", f"3:{log[2].hash}")) == {
        "ok": True, "entries": 6, "head": head,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("statements", "number"),
    [
        (["UPDATE {} SET after_json = '{{}}' WHERE number = 4"], 4),
        (["UPDATE {} SET actor = 'eve' WHERE number = 1"], 1),
        (["DELETE FROM {} WHERE number = 2"], 2),
        ([f"UPDATE {{}} SET number = {new} WHERE number = {old}"
          for old, new in ((2, 100), (5, 2), (100, 5))], 2),
        (["DELETE FROM {} WHERE number > 4"], 5),
    ],
)  # fmt: skip
def test_tampering(log: list[AuditEntry], statements: list[str], number: int) -> None:
    for statement in statements:
        tamper(statement.format(TABLE))
    with pytest.raises(CommandError, match=f"entry {number}: ") as refused:
        run("verify", "--head", f"6:{log[-1].hash}")
    assert refused.value.returncode == 1


def test_a_wrong_head_is_a_mistake_of_usage() -> None:
    with pytest.raises(CommandError, match="a head is"):
        run("verify", "--head", "nonsense")


@pytest.mark.parametrize(
    ("arguments", "numbers"),
    [
        ((), [6, 5, 4, 3, 2, 1]),
        (("--actor", "olga"), [5, 4, 2, 1]),
        (("--actor", "ol"), []),
        (("--action", "ban"), [5, 3, 1]),
        (("--action", "limit.set", "--target", "=2"), [2]),
        (("--face", "cli"), []),
        (("--since", "1h", "--limit", "2"), [6, 5]),
        (("--until", "2026-01-01"), []),
        (("--since", "2999-01-01T10:00"), []),
    ],
)
def test_filters(log: list[AuditEntry], arguments: tuple[str, ...], numbers: list[int]) -> None:
    found = json.loads(run("list", "--json", *arguments))
    assert [entry["number"] for entry in found] == numbers


def test_list_as_text(log: list[AuditEntry]) -> None:
    line = run("list", "--limit", "1")
    assert 'otto (rest 192.0.2.1)  limit.set  =6  null -> {"number":6}' in line


@pytest.mark.parametrize(
    "arguments",
    [
        ("--since", "yesterday"),
        ("--since", "0001-01-01T00:00:00+14:00"),
        ("--since", "999999d"),
        ("--limit", "0"),
        ("--limit", "x"),
        ("--face", "phone"),
    ],
)
def test_usage(arguments: tuple[str, ...]) -> None:
    with pytest.raises(CommandError):
        run("list", *arguments)


def test_export(log: list[AuditEntry]) -> None:
    lines = [json.loads(line) for line in run("export", "--action", "ban").splitlines()]
    assert [line["number"] for line in lines] == [1, 3, 5]
    assert lines[0]["after"] == {"number": 1} and lines[0]["hash"] == log[0].hash
    rows = list(csv.DictReader(StringIO(run("export", "--form", "csv"))))
    assert rows[0]["after"] == '{"number":1}'
    assert rows[0]["target"] == "'=1", "a spreadsheet would take it for a formula"
    assert [entry.action for entry in AuditEntry.objects.all()[:2]] == ["audit.export"] * 2


def test_what_the_system_does_has_a_name() -> None:
    services.record(SYSTEM, "account.sign_in", target="olga")
    assert "system (system -)  account.sign_in  olga" in run("list")


def test_what_a_stranger_typed_does_nothing_to_the_terminal(db: None) -> None:
    services.record(SYSTEM, "account.sign_in_failed", target="\x1bc…")
    assert "\x1b" not in run("list") and "x1bc" in run("list")


@pytest.fixture
def aged(monkeypatch: pytest.MonkeyPatch) -> list[AuditEntry]:
    """Record entries 1 to 6, of 60, 50, 40, 20, 10 and 0 days ago."""
    today = timezone.now()
    for days in (60, 50, 40, 20, 10, 0):
        at = today - timedelta(days=days)
        monkeypatch.setattr(timezone, "now", lambda at=at: at)
        services.record(SYSTEM, "account.sign_in", target=f"{days} days ago")
    monkeypatch.undo()
    return list(AuditEntry.objects.order_by("number"))


def numbers() -> list[int]:
    return sorted(AuditEntry.objects.values_list("number", flat=True))


def test_pruning(aged: list[AuditEntry], tmp_path: Path) -> None:
    file = tmp_path / "old.jsonl"
    told = run("prune", "--before", "45d", "--copy", str(file))
    assert told == f"all entries up to 2 are deleted\nhead 2:{aged[1].hash}\n"
    assert numbers() == [3, 4, 5, 6, 7]
    assert [json.loads(line)["number"] for line in file.read_text().splitlines()] == [1, 2]
    assert file.stat().st_mode & 0o777 == 0o600
    entry = AuditEntry.objects.get(number=7)
    assert (entry.action, entry.after["deleted"], entry.face) == ("audit.prune", 2, "cli")
    heads = (
        "--head",
        f"1:{'0' * 64}",
        "--head",
        f"2:{aged[1].hash}",
        "--head",
        f"6:{aged[5].hash}",
    )
    assert run("verify", *heads).startswith("5 entries, nothing was changed\n")
    with pytest.raises(CommandError, match="entry 2: it is not the one"):
        run("verify", "--head", f"2:{'0' * 64}")

    assert json.loads(run("prune", "--before", "45d", "--no-copy", "--json")) == {"pruned": None}
    again = json.loads(run("prune", "--before", "31d", "--no-copy", "--json"))
    assert again == {"pruned": f"3:{aged[2].hash}"} and numbers() == [4, 5, 6, 7, 8]
    assert run("verify").startswith("5 entries")


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM {} WHERE number = 3",  # more than the entry reports
        "DELETE FROM {} WHERE number = 7",  # the entry that reports it
        "UPDATE {} SET previous = '{zeros}' WHERE number = 3",
    ],
)
def test_cutting_more_off_is_found(aged: list[AuditEntry], statement: str) -> None:
    run("prune", "--before", "45d", "--no-copy")
    if "number = 7" in statement:
        services.record(SYSTEM, "account.sign_in", target="later")
        run("verify")
    with connection.cursor() as cursor:
        triggers.remove(None, SimpleNamespace(connection=connection))
        cursor.execute(statement.format(TABLE, zeros="0" * 64))
        if "number = 7" in statement:  # and the entries after it
            cursor.execute(f"DELETE FROM {TABLE} WHERE number = 8")
    with pytest.raises(CommandError, match="the audit log was changed"):
        run("verify")


def test_a_beginning_that_nobody_pruned_is_missing(aged: list[AuditEntry]) -> None:
    tamper(f"DELETE FROM {TABLE} WHERE number < 3")
    with pytest.raises(CommandError, match="entry 1: it is missing, and no entry says"):
        run("verify")
    with pytest.raises(CommandError, match="nothing is deleted"):
        run("prune", "--before", "35d", "--no-copy")
    assert numbers() == [3, 4, 5, 6]


def test_what_is_not_pruned(aged: list[AuditEntry], tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.write_text("mine")
    for wrong, why in (
        (("--before", "20d", "--no-copy"), "before: must be 30 days"),
        (("--before", "45d", "--copy", str(there)), "File exists"),
        (("--before", "45d"), "one of the arguments --copy --no-copy is required"),
    ):
        with pytest.raises(CommandError, match=why):
            run("prune", *wrong)
    assert numbers() == [1, 2, 3, 4, 5, 6] and there.read_text() == "mine"

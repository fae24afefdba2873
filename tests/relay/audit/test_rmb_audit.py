"""`manage.py rmb_audit`: list, verify, export, on a log that somebody tampered with."""

from __future__ import annotations

import csv
import json
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from relay.access.actor import SYSTEM, Actor, Face
from relay.audit import services
from relay.audit.models import AuditEntry

pytestmark = pytest.mark.django_db

TABLE = AuditEntry._meta.db_table


def run(*arguments: str) -> str:
    out = StringIO()
    call_command("rmb_audit", *arguments, stdout=out, stderr=StringIO())
    return out.getvalue()


@pytest.fixture
def log() -> list[AuditEntry]:
    """Six changes by three actors."""
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
    [("--since", "yesterday"), ("--limit", "0"), ("--limit", "x"), ("--face", "phone")],
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

"""`manage.py rmb_sessions` and `rmb_kick`."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from proto.sbd.frames import path_of_key
from relay.audit.models import AuditEntry
from relay.queues import keys
from relay.sessions.models import Session
from tests.proto.sbd.pairs import Identity
from tests.support.redis_servers import RedisServer

pytestmark = pytest.mark.django_db(transaction=True)


def run(*arguments: str) -> str:
    stdout = StringIO()
    call_command(*arguments, stdout=stdout, stderr=StringIO())
    return stdout.getvalue()


@pytest.fixture
def server(site_redis: RedisServer) -> RedisServer:
    now = datetime.now(UTC)
    for epoch, (twin, sid) in enumerate([(7, None), (7, "x"), (8, "")], start=1):
        row = Session.objects.create(
            twin=twin, sid_present=sid is not None, sid=sid or "", epoch=epoch, worker="boot",
            remote="192.0.2.1", opened_at=now,
        )  # fmt: skip
        site_redis.run("HSET", keys.SESSIONS, row.key_text, f"{epoch} boot 1.0 192.0.2.1")
    Session.objects.create(
        twin=7, epoch=9, worker="boot", opened_at=now, closed_at=now, close_reason="idle"
    )
    return site_redis


def test_sessions(server: RedisServer) -> None:
    found = json.loads(run("rmb_sessions", "--json"))
    assert [each["key"] for each in found] == ["8:", "7:x", "7"]
    assert [each["sid"] for each in found] == ["", "x", None]
    text = run("rmb_sessions", "7", "--order=twin")
    assert "'7:x'" in text and "'8:'" not in text and "192.0.2.1" in text
    assert len(json.loads(run("rmb_sessions", "--sid", "", "--json"))) == 1
    history = json.loads(run("rmb_sessions", "7", "--history", "--json"))
    assert [each["close_reason"] for each in history] == ["idle", "", ""]
    assert "idle" in run("rmb_sessions", "--history")
    for wrong in (("x",), ("--order", "name"), ("--limit", "0"), ("--history", "--limit", "0")):
        with pytest.raises(CommandError, match=r"id|order|limit"):
            run("rmb_sessions", *wrong)


def test_sessions_on_streams(server: RedisServer) -> None:
    Session.objects.filter(sid="x").update(connection=3, stream=12)
    (found,) = json.loads(run("rmb_sessions", "--carrier", "streams", "--json"))
    assert (found["key"], found["connection"], found["stream"]) == ("7:x", 3, 12)
    heads, line = run("rmb_sessions", "--carrier", "streams").splitlines()
    assert line[heads.index("STREAM") :].split() == ["12", "'7:x'"]
    (row,) = json.loads(run("rmb_sessions", "--history", "--carrier", "streams", "--json"))
    assert (row["connection"], row["stream"]) == (3, 12)
    assert "7:x" not in run("rmb_sessions", "--carrier", "websocket")


def test_sessions_of_sbd_clients(server: RedisServer) -> None:
    identity = Identity(1)
    peer = path_of_key(identity.key)
    Session.objects.create(
        protocol="sbd", peer=peer, epoch=9, worker="boot", opened_at=datetime.now(UTC)
    )
    server.run("HSET", keys.SBD_KEYS, identity.key, "boot 9")
    (found,) = json.loads(run("rmb_sessions", "--protocol", "sbd", "--json"))
    assert (found["key"], found["peer"], found["twin"]) == (f"sbd:{peer}", peer, None)
    assert f"'sbd:{peer}'" in run("rmb_sessions", "--peer", peer[:5])
    assert peer not in run("rmb_sessions", "--protocol", "rmb")
    (row,) = json.loads(run("rmb_sessions", "--history", "--protocol", "sbd", "--json"))
    assert (row["protocol"], row["peer"], row["twin"]) == ("sbd", peer, None)
    assert json.loads(run("rmb_kick", f"sbd:{peer}", "--json"))["epoch"] == 9
    with pytest.raises(CommandError, match="number"):
        run("rmb_kick", f"sbd:{peer}", "--all")


def test_kick(server: RedisServer) -> None:
    assert run("rmb_kick", "7:x") == "session '7:x' will end within a second\n"
    assert json.loads(run("rmb_kick", "7", "--all", "--json")) == {"twin": 7, "sessions": 2}
    control = server.run("HGETALL", keys.CONTROL)
    assert b"kick:7:x" in control and b"kick_twin:7" in control
    assert {(entry.face, entry.action) for entry in AuditEntry.objects.all()} == {
        ("cli", "session.kick")
    }
    for wrong in (("7:y",), ("9", "--all"), ("7:x", "--all")):
        with pytest.raises(CommandError, match=r"not connected|number"):
            run("rmb_kick", *wrong)


@pytest.mark.usefixtures("no_redis")
def test_without_redis() -> None:
    Session.objects.create(twin=1, epoch=1, worker="boot", opened_at=datetime.now(UTC))
    for arguments in (("rmb_sessions",), ("rmb_kick", "7")):
        with pytest.raises(CommandError, match="Redis does not answer"):
            run(*arguments)

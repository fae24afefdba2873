"""`manage.py rmb_queue` deletes messages only if no twin is to receive them, and asks first."""

from __future__ import annotations

import builtins
import json
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from relay.access.actor import SYSTEM
from relay.limits import services as limits
from relay.queues import keys
from relay.twins import services
from relay.twins.fields import TwinValues
from tests.support.envelopes import request
from tests.support.identities import twin as make_twin
from tests.support.redis_servers import RedisServer

pytestmark = pytest.mark.django_db(transaction=True)

TWIN = 7


def run(*arguments: str) -> str:
    stdout = StringIO()
    call_command("rmb_queue", *arguments, stdout=stdout, stderr=StringIO())
    return stdout.getvalue()


@pytest.fixture
def server(site_redis: RedisServer) -> RedisServer:
    """Queue messages for sessions of twin 7, one of them connected, and for twin 70."""
    services.put_twin(TwinValues(TWIN, make_twin(TWIN).account, None, ("here",)), actor=SYSTEM)
    for key, count in (("7", 3), ("7:x", 2), ("70", 1), ("7:", 4)):
        for _ in range(count):
            site_redis.run("XADD", f"stream:{key}", "*", "_", b"mail")
    site_redis.run("HSET", keys.share("7"), "1", "3")
    site_redis.run("HSET", keys.SESSIONS, "7:x", "1 boot 1.0 127.0.0.1")
    return site_redis


def test_list(server: RedisServer) -> None:
    found = json.loads(run("list", "7", "--json"))
    assert [(each["key"], each["messages"], each["connected"]) for each in found] == [
        ("7:", 4, False), ("7", 3, False), ("7:x", 2, True),
    ]  # fmt: skip
    text = run("list")
    assert "'70'" in text and "'7:x'  connected" in text and "'70'" not in run("list", "7")


def test_show_and_export(server: RedisServer) -> None:
    envelope = request((3, "a"), (TWIN, None), b"secret", uid="the-uid", command="a.command")
    server.run("XADD", "stream:7", "*", "_", envelope.SerializeToString())
    for text in (run("show", "7"), run("export", "7"), run("export", "7", "--form", "csv")):
        assert "the-uid" in text and "a.command" in text and "unparsable" in text
        assert "secret" not in text
    first = json.loads(run("show", "7", "--json", "--limit", "1"))
    assert len(first) == 1
    rest = json.loads(run("show", "7", "--json", "--after", first[0]["entry"]))
    assert [each["problem"] for each in rest] == ["unparsable", "unparsable", ""]


def test_move(server: RedisServer) -> None:
    envelope = request((3, "a"), (TWIN, None), uid="the-uid").SerializeToString()
    server.run("XADD", "stream:7:y", "*", "_", envelope)
    assert run("move", "7:y", "7:x").startswith("1 message moved")
    assert server.run("XLEN", "stream:7:x") == 3
    with pytest.raises(CommandError, match="connected"):
        run("move", "7:x", "7")
    with pytest.raises(CommandError, match="must be a session of twin 7"):
        run("move", "7", "8")


def test_one_queue_of_a_twin_that_may_come_back(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reply(question: str) -> str:
        assert question == "Twin 7 may still fetch them. Delete 3 messages for 7? [y/N] "
        server.run("XADD", "stream:7", "*", "_", b"meanwhile")
        return "y"

    monkeypatch.setattr(builtins, "input", reply)
    assert run("purge", "7") == "3 messages deleted\n"
    assert server.run("XLEN", "stream:7") == 1 and server.run("XLEN", "stream:7:") == 4
    with pytest.raises(CommandError, match="connected"):
        run("purge", "7:x", "--yes")
    assert run("purge", "7:none", "--yes") == "no messages wait for 7:none\n"


@pytest.mark.parametrize("fate", ["banned", "removed"])
def test_purge(server: RedisServer, client: Client, fate: str) -> None:
    if fate == "banned":
        limits.ban(TWIN, actor=SYSTEM)
    else:
        services.remove_twins([TWIN], actor=SYSTEM)
    assert run("purge", "7", "--yes") == "7 messages deleted\n"
    assert server.run("KEYS", "stream:*") and server.run("EXISTS", keys.share("7")) == 0
    assert [server.run("XLEN", f"stream:{key}") for key in ("7", "7:", "7:x", "70")] == [0, 0, 2, 1]
    assert run("purge", "7", "--yes") == "no messages wait for twin 7\n"
    assert 'relay_messages_total{reason="purged"} 7\n' in client.get("/metrics").content.decode()


def test_mail_that_comes_while_it_asks_stays(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits.ban(TWIN, actor=SYSTEM)

    def reply(_: str) -> str:
        for key in ("7", "7:new"):
            server.run("XADD", f"stream:{key}", "*", "_", b"meanwhile")
        return "y"

    monkeypatch.setattr(builtins, "input", reply)
    assert run("purge", "7") == "7 messages deleted\n"
    assert [server.run("XLEN", f"stream:{key}") for key in ("7", "7:", "7:new")] == [1, 0, 1]


@pytest.mark.parametrize("answer", ["", "n", EOFError])
def test_it_asks_first(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch, answer: str | type[Exception]
) -> None:
    def reply(question: str) -> str:
        assert question == "Delete 7 messages for twin 7? [y/N] "
        if isinstance(answer, str):
            return answer
        raise answer

    monkeypatch.setattr(builtins, "input", reply)
    limits.ban(TWIN, actor=SYSTEM)
    with pytest.raises(CommandError, match="nothing was deleted"):
        run("purge", "7")
    assert server.run("XLEN", "stream:7") == 3


def test_purging_for_programs(server: RedisServer) -> None:
    with pytest.raises(CommandError, match="--json needs --yes") as refused:
        run("purge", "7", "--json")
    assert refused.value.returncode == 2
    for key, count in (("7", 3), ("7", 0), ("70", 1)):
        document = json.loads(run("purge", key, "--yes", "--json"))
        assert document == {"key": key, "purged": count}


def test_refusals(server: RedisServer) -> None:
    with pytest.raises(CommandError, match="id"):
        run("list", "x")
    for arguments in (("show", "x"), ("list", "--order", "age"), ("list", "--limit", "0")):
        with pytest.raises(CommandError, match=r"key|order|limit"):
            run(*arguments)


def test_without_redis(no_redis: None) -> None:
    with pytest.raises(CommandError, match="Redis does not answer"):
        run("list", "7")

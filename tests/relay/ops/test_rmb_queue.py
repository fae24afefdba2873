"""`manage.py rmb_queue`: mail is deleted only when nobody is to have it, and after a question."""

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
    """Mail for two sessions of twin 7, one of them connected, and for twin 70."""
    services.put_twin(TwinValues(TWIN, make_twin(TWIN).account, None, ("here",)), actor=SYSTEM)
    for key, count in (("7", 3), ("7:x", 2), ("70", 1), ("7:", 4)):
        for _ in range(count):
            site_redis.run("XADD", f"stream:{key}", "*", "_", b"mail")
    site_redis.run("HSET", keys.share("7"), "1", "3")
    site_redis.run("HSET", keys.SESSIONS, "7:x", "1 boot 1.0 127.0.0.1")
    return site_redis


def test_list(server: RedisServer) -> None:
    assert json.loads(run("list", "7", "--json")) == [
        {"key": "7", "messages": 3, "connected": False},
        {"key": "7:", "messages": 4, "connected": False},
        {"key": "7:x", "messages": 2, "connected": True},
    ]
    assert "3  '7'" in run("list", "7") and "connected" in run("list", "7")


def test_a_twin_that_may_come_back_keeps_its_mail(server: RedisServer) -> None:
    with pytest.raises(CommandError, match="neither banned nor removed"):
        run("purge", "7", "--yes")
    assert server.run("XLEN", "stream:7") == 3


@pytest.mark.parametrize("fate", ["banned", "removed"])
def test_purge(server: RedisServer, client: Client, fate: str) -> None:
    if fate == "banned":
        limits.ban(TWIN, actor=SYSTEM)
    else:
        services.remove_twins([TWIN], actor=SYSTEM)
    assert run("purge", "7", "--yes") == "7 messages deleted\n"
    assert server.run("KEYS", "stream:*") and server.run("EXISTS", keys.share("7")) == 0
    assert [server.run("XLEN", f"stream:{key}") for key in ("7", "7:", "7:x", "70")] == [0, 0, 2, 1]
    assert run("purge", "7", "--yes") == "no mail waits for twin 7\n"
    assert 'relay_messages_total{reason="purged"} 7\n' in client.get("/metrics").content.decode()


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


def test_refusals(server: RedisServer) -> None:
    with pytest.raises(CommandError, match="id"):
        run("list", "x")


def test_without_redis(no_redis: None) -> None:
    with pytest.raises(CommandError, match="redis does not answer"):
        run("list", "7")

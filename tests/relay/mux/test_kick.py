"""Kicks of connections: the services, the command, the audit log, and the worker's part."""

from __future__ import annotations

import asyncio
import json
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from proto.mux.events import HalfFailed
from relay.access.actor import Actor, Face
from relay.access.errors import Denied, NotFound
from relay.audit.models import AuditEntry
from relay.mux import services
from relay.mux.options import LINGER_S
from relay.queues import keys
from tests.relay.mux.sides import Pair, Wire
from tests.support.published_connections import connection, publish_connections
from tests.support.redis_servers import RedisServer

database = pytest.mark.django_db(transaction=True)

ACTOR = Actor("tester", Face.CLI, "", None)
NOBODY = Actor("nobody", Face.REST, "", frozenset())


@pytest.fixture
def server(site_redis: RedisServer) -> RedisServer:
    publish_connections(site_redis, "boot", [connection(3), connection(4, address="unix")])
    publish_connections(site_redis, "other", [connection(3, address="unix")])
    return site_redis


def told(server: RedisServer) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = server.run("HGETALL", keys.CONTROL)
    return found


@database
def test_one(server: RedisServer) -> None:
    assert services.kick("boot", 3, actor=ACTOR, reason="noise").sessions == 3
    assert told(server)[b"kick_connection:boot:3"] == b"3|noise"
    entry = AuditEntry.objects.get()
    assert (entry.action, entry.target) == ("session.kick", "boot/3")
    before = {"address": "192.0.2.1:5003", "streams": 3, "sessions": 3}
    assert json.loads(entry.before_json) == before
    assert json.loads(entry.after_json) == {"reason": "noise"}
    with pytest.raises(NotFound):
        services.kick("boot", 5, actor=ACTOR)
    with pytest.raises(Denied):
        services.kick("boot", 3, actor=NOBODY)
    assert AuditEntry.objects.count() == 1


@database
def test_by_the_command(server: RedisServer) -> None:
    def kick(text: str, *more: str) -> str:
        stdout = StringIO()
        call_command("rmb_kick", text, "--connection", *more, stdout=stdout)
        return stdout.getvalue()

    assert kick("192.0.2.1:5003") == "connection boot/3 with 3 sessions will end within a second\n"
    assert json.loads(kick("other/3", "--json")) == {"connection": "other/3", "sessions": 3}
    assert {b"kick_connection:boot:3", b"kick_connection:other:3"} <= told(server).keys()
    for wrong, error in (
        ("192.0.2.9", "no connection from 192.0.2.9"),
        ("boot/5", "no connection boot/5"),
        ("unix", "several connections are from unix; name one of them: boot/4, other/3"),
    ):
        with pytest.raises(CommandError, match=error):
            kick(wrong)


async def test_a_worker_ends_its_sessions_and_then_the_connection() -> None:
    pair = Pair()
    stream_id, session = await pair.sign_in()
    _, late = await pair.sign_in()
    late.socket.send_messages([b"unread"])
    other: Any = Wire()
    neighbour = pair.server.open(other, "127.0.0.1", "agent")
    pair.server.decide(
        {"kick_connection:boot:1": "1|noise", "kick_connection:other:2": "2|", "version": "7"}, None
    )
    await pair.settle()
    failed = [event for event in pair.client.told() if isinstance(event, HalfFailed)]
    assert {(each.stream_id, each.code) for each in failed} == {(stream_id, 4003)}
    assert session.ended == (4003, None)
    await asyncio.sleep(2 * LINGER_S)
    assert pair.wire.closed == (4003, "kicked")
    assert late.ended is not None
    assert pair.counts.ended == {}  # counted when the websocket ends
    pair.relay.closed(4003, None)
    assert pair.counts.ended == {"kicked": 1}
    assert list(pair.server.connections) == [neighbour] and other.closed is None


async def test_a_connection_without_sessions_ends_at_once() -> None:
    pair = Pair()
    pair.server.decide({"kick_connection:boot:1": "1|noise"}, None)
    assert pair.wire.closed == (4003, "kicked")

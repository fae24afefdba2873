"""Kicks as services: the sessions they address, the audit entry, and the command to the workers."""

from __future__ import annotations

import json

import pytest
from django.utils import timezone

from proto.sbd.frames import path_of_key
from relay.access.actor import Actor, Face
from relay.access.errors import Away, Conflict, Denied, Invalid, NotFound
from relay.audit.models import AuditEntry
from relay.queues import keys
from relay.sessions import services
from relay.sessions.models import Session
from tests.proto.sbd.pairs import Identity
from tests.support.redis_servers import RedisServer

pytestmark = pytest.mark.django_db(transaction=True)

ACTOR = Actor("tester", Face.CLI, "", None)
NOBODY = Actor("nobody", Face.REST, "", frozenset())


@pytest.fixture
def server(site_redis: RedisServer) -> RedisServer:
    for key, epoch in (("7", 5), ("7:x", 8), ("7:", 6), ("70", 9)):
        site_redis.run("HSET", keys.SESSIONS, key, f"{epoch} boot 1.0 192.0.2.1")
    return site_redis


def told(server: RedisServer) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = server.run("HGETALL", keys.CONTROL)
    return found


def test_one(server: RedisServer) -> None:
    assert services.kick("7:x", actor=ACTOR, reason="noise") == 8
    assert told(server)[b"kick:7:x"] == b"8|noise"
    entry = AuditEntry.objects.get()
    assert (entry.action, entry.target) == ("session.kick", "7:x")
    assert json.loads(entry.before_json) == {"epoch": 8, "worker": "boot", "address": "192.0.2.1"}
    with pytest.raises(Conflict):
        services.kick("7:x", actor=ACTOR, epoch=7)
    for key in ("8", "7:y", "", "7:\ud800"):
        with pytest.raises(NotFound):
            services.kick(key, actor=ACTOR)
    with pytest.raises(Denied):
        services.kick("7", actor=NOBODY)
    assert AuditEntry.objects.count() == 1


def test_an_sbd_client(server: RedisServer) -> None:
    peer = path_of_key(Identity(1).key)
    server.run("HSET", keys.SBD_KEYS, Identity(1).key, "boot 8")
    Session.objects.create(
        protocol="sbd", peer=peer, epoch=8, worker="boot", remote="192.0.2.1:9",
        opened_at=timezone.now(),
    )  # fmt: skip
    with pytest.raises(Conflict):
        services.kick(f"sbd:{peer}", actor=ACTOR, epoch=7)
    assert services.kick(f"sbd:{peer}", actor=ACTOR, epoch=8, reason="noise") == 8
    assert told(server)[f"kick:sbd:{peer}".encode()] == b"8|noise"
    entry = AuditEntry.objects.get()
    assert (entry.action, entry.target) == ("session.kick", f"sbd:{peer}")
    before = {"epoch": 8, "worker": "boot", "address": "192.0.2.1:9"}
    assert json.loads(entry.before_json) == before
    for key in (f"sbd:{path_of_key(Identity(2).key)}", "sbd:", "sbd:7", f"sbd:{peer}="):
        with pytest.raises(NotFound):
            services.kick(key, actor=ACTOR)
    server.run("HSET", keys.SBD_KEYS, Identity(1).key, "boot")
    with pytest.raises(Away, match="malformed"):
        services.kick(f"sbd:{peer}", actor=ACTOR)


@pytest.mark.parametrize("entry", [b"", b"\xff", b"x boot 1.0 192.0.2.1", b" 5"])
def test_an_entry_that_is_none_is_told(server: RedisServer, entry: bytes) -> None:
    """A malformed entry is reported; the session's worker later replaces it with its own."""
    server.run("HSET", keys.SESSIONS, "7:x", entry)
    with pytest.raises(Away, match="the entry of session 7:x in Redis is malformed"):
        services.kick("7:x", actor=ACTOR)
    assert not AuditEntry.objects.exists()
    server.run("HSET", keys.SESSIONS, "7:x", "8")
    assert services.kick("7:x", actor=ACTOR) == 8


def test_all_of_a_twin(server: RedisServer) -> None:
    seconds, _ = server.run("TIME")
    assert services.kick_twin(7, actor=ACTOR) == 3
    epoch, _, reason = told(server)[b"kick_twin:7"].partition(b"|")
    # The epoch is the current time of Redis' clock: later connections have greater ones.
    assert seconds * 10**6 <= int(epoch) <= (seconds + 60) * 10**6 and reason == b"kicked by tester"
    entry = AuditEntry.objects.get()
    assert (entry.target, json.loads(entry.before_json)) == ("7", {"sessions": 3})
    with pytest.raises(NotFound):
        services.kick_twin(8, actor=ACTOR)
    for twin in (0, 2**32):
        with pytest.raises(Invalid):
            services.kick_twin(twin, actor=ACTOR)
    with pytest.raises(Denied):
        services.kick_twin(7, actor=NOBODY)


def test_a_clock_that_was_set_back(server: RedisServer) -> None:
    ahead = (server.run("TIME")[0] + 3600) * 10**6
    server.run("HSET", keys.SESSIONS, "7:x", f"{ahead} boot 1.0 192.0.2.1")
    services.kick_twin(7, actor=ACTOR)
    assert told(server)[b"kick_twin:7"].startswith(b"%d|" % ahead)


@pytest.mark.usefixtures("no_redis")
def test_without_redis() -> None:
    for act in (
        lambda: services.kick("7", actor=ACTOR),
        lambda: services.kick_twin(7, actor=ACTOR),
    ):
        with pytest.raises(Away):
            act()
    assert not AuditEntry.objects.exists()

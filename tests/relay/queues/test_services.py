"""Queues as operators see and change them: pages, rules for deletion, audit, and export."""

from __future__ import annotations

import csv
import json
import time
from typing import Any

import pytest
from django.db import connection
from redis.connection import Connection
from redis.exceptions import ConnectionError as RedisConnectionError

from relay.access.actor import Actor, Face
from relay.access.errors import Away, Conflict, Denied, Invalid, NotFound
from relay.audit.models import AuditEntry
from relay.limits.models import TwinLimit
from relay.queues import keys, moving, services
from relay.twins.models import Twin
from tests.relay.queues.mail import TO, fill, put, uids
from tests.support.envelopes import request
from tests.support.identities import twin as make_twin
from tests.support.published import publish
from tests.support.redis_servers import RedisServer

pytestmark = pytest.mark.django_db(transaction=True)

ACTOR = Actor("tester", Face.CLI, "", None)
NOBODY = Actor("nobody", Face.REST, "", frozenset())


@pytest.fixture
def server(site_redis: RedisServer) -> RedisServer:
    """Add messages for twin 7, which exists, 8, which is banned, and 9, which was removed."""
    for twin in (7, 8):
        Twin.objects.create(id=twin, account=make_twin(twin).account)
    TwinLimit.objects.create(twin=8, banned=True)
    for key, count in (("7", 3), ("7:x", 2), ("7:", 1), ("8", 4), ("8:y", 1), ("9", 5)):
        fill(site_redis, key, count)
    site_redis.run("HSET", keys.SESSIONS, "7:x", "1 boot 1.0 127.0.0.1")
    return site_redis


def listed(**options: object) -> list[str]:
    return [queue.key for queue in services.list_queues(**options).items]  # type: ignore[arg-type]


def test_list(server: RedisServer) -> None:
    server.run("SET", "stream:no-stream", "1")
    server.run("XADD", "stream:none-of-ours", "*", "a", "b")
    server.run("XADD", b"stream:7:\xff", "*", "a", "b")
    server.run("XADD", "stream:6", "1-1", "a", "b")
    server.run("XDEL", "stream:6", "1-1")  # an empty stream is not listed as a queue
    assert listed() == ["7", "7:", "7:x", "8", "8:y", "9"]
    assert listed(order="-messages", limit=2) == ["9", "8"]
    assert listed(twin=7) == ["7", "7:", "7:x"]
    assert listed(connected=True) == ["7:x"] and len(listed(connected=False)) == 5
    (queue,) = services.list_queues(connected=True).items
    assert (queue.twin, queue.sid, queue.messages) == (7, "x", 2)
    assert 0 < queue.size_bytes < 10_000 and abs(queue.oldest_at - time.time()) < 60
    assert queue.newest == server.run("XREVRANGE", "stream:7:x", "+", "-")[0][0].decode()


def test_rates(server: RedisServer) -> None:
    publish(server, "7", worker="one", stored=2.5)
    publish(server, "7", worker="two", stored=2.5)
    publish(server, "7:x", 1, messages_in=99, messages_out=30, stored=20)
    publish(server, "7:x", worker="two", stored=15)
    assert listed(order="-rate_in", limit=2) == ["7:x", "7"]
    assert listed(order="-rate_out", limit=1) == ["7:x"]
    assert listed(order="rate_in", twin=7) == ["7:", "7", "7:x"]
    found = services.get_queue("7:x")
    assert (found.rate_in, found.rate_out) == (35, 30)


ORDERS = ("twin", "-twin", "messages", "-size", "oldest", "-newest", "rate_in", "-rate_out")


@pytest.mark.parametrize("order", ORDERS)
def test_pages_come_to_everything_once(server: RedisServer, order: str) -> None:
    publish(server, "8:y", worker="one", stored=2.5)
    publish(server, "7:x", 1, messages_out=30, stored=20)
    found: list[str] = []
    cursor = ""
    while True:
        page = services.list_queues(order=order, limit=2, cursor=cursor)
        found += [queue.key for queue in page.items]
        cursor = page.next
        if not cursor:
            break
    assert found == listed(order=order) and len(found) == 6


def test_bad_questions(server: RedisServer) -> None:
    cursor = services.list_queues(limit=1).next
    for options in (
        {"order": "age"}, {"limit": 0}, {"limit": 1001}, {"cursor": "x"}, {"cursor": "e30"},
        {"cursor": cursor, "order": "size"},
    ):  # fmt: skip
        with pytest.raises(Invalid):
            listed(**options)
    for key in ("", "x", "7\ud800", "7:" + "s" * 5000):
        with pytest.raises(Invalid):
            services.get_queue(key)
    with pytest.raises(NotFound):
        services.get_queue("7:none")
    assert services.get_queue("7:").messages == 1


def test_a_list_of_twenty_thousand_queues(
    site_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list queries Redis about many queues in one request."""
    with site_redis.client().pipeline(transaction=False) as pipe:
        for twin in range(1, 20_001):
            pipe.xadd(f"stream:{twin}", {"_": b"m"})
        pipe.execute()
    sent: list[object] = []
    send = Connection.send_packed_command

    def counted(self: Connection, command: object, check_health: bool = True) -> None:
        sent.append(command)
        send(self, command, check_health)

    monkeypatch.setattr(Connection, "send_packed_command", counted)
    page = services.list_queues(order="-messages", limit=50)
    assert len(page.items) == 50 and page.next
    assert 0 < len(sent) < 20_000 / 100


def test_headers_by_pages(server: RedisServer) -> None:
    first = services.list_headers("9", limit=3)
    assert [header.uid for header in first.items] == ["m0", "m1", "m2"]
    rest = services.list_headers("9", limit=3, after=first.next)
    assert [header.uid for header in rest.items] == ["m3", "m4"] and rest.next == ""
    assert services.list_headers("9", limit=5).next == ""
    with pytest.raises(Invalid):
        services.list_headers("9", after="yesterday")


def test_purge_deletes_what_was_seen(server: RedisServer) -> None:
    with pytest.raises(Invalid, match="neither banned nor removed"):
        services.purge("7", actor=ACTOR)
    seen = services.get_queue("7").newest
    fill(server, "7", 1, "later")
    assert services.purge("7", actor=ACTOR, up_to=seen) == 3
    assert uids(server, "7") == ["later0"]
    entry = AuditEntry.objects.get()
    assert (entry.action, entry.target) == ("queue.purge", "7")
    assert json.loads(entry.after_json) == {"purged": 3, "up_to": seen}
    assert int(server.run("GET", keys.PURGED)) == 3


def test_purge_of_a_connected_session(server: RedisServer) -> None:
    with pytest.raises(Conflict, match="connected"):
        services.purge("7:x", actor=ACTOR, up_to=services.get_queue("7:x").newest)
    assert server.run("XLEN", "stream:7:x") == 2 and not AuditEntry.objects.exists()


def test_purge_of_a_whole_twin(server: RedisServer) -> None:
    with pytest.raises(Conflict, match="neither banned nor removed"):
        services.purge_twin(7, actor=ACTOR)
    assert services.purge_twin(8, actor=ACTOR) == 5
    assert services.purge("9", actor=ACTOR) == 5
    assert services.purge_twin(9, actor=ACTOR) == 0
    assert AuditEntry.objects.count() == 2  # where nothing is deleted, nothing is recorded
    assert listed() == ["7", "7:", "7:x"]


def test_move(server: RedisServer) -> None:
    moved = services.move("7", "7:x", actor=ACTOR)
    assert (moved.moved, moved.left, moved.stopped) == (3, 0, "")
    entry = AuditEntry.objects.get()
    assert (entry.action, entry.target) == ("queue.move", "7")
    assert json.loads(entry.after_json) == {"to": "7:x", "moved": 3, "stopped": ""}
    for source, target in (("7", "8"), ("7:", "7:"), ("7", "7:" + "s" * 129), ("7", "seven")):
        with pytest.raises(Invalid):
            services.move(source, target, actor=ACTOR)
    with pytest.raises(Conflict, match="connected"):
        services.move("7:x", "7", actor=ACTOR)
    assert services.move("7:none", "7", actor=ACTOR).moved == 0
    assert AuditEntry.objects.count() == 1


def test_a_long_move_lets_other_changes_in(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the first page shares a transaction with its audit entry; another entry has the rest."""
    mail = fill(server, "7", 600)
    held = []
    run = moving._run

    def watched(*arguments: Any) -> Any:
        held.append(connection.in_atomic_block)
        return run(*arguments)

    monkeypatch.setattr(moving, "_run", watched)
    moved = services.move("7", "7:y", actor=ACTOR)
    assert (moved.moved, moved.left, moved.stopped) == (603, 0, "")
    assert uids(server, "7:y")[3:] == mail
    assert held == [True, False, False]
    told = [json.loads(entry.after_json) for entry in AuditEntry.objects.order_by("number")]
    assert told == [
        {"to": "7:y", "moved": 256, "stopped": "", "goes_on": True},
        {"to": "7:y", "moved": 347, "stopped": ""},
    ]


def test_a_long_move_that_is_broken_off_says_so(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(server, "7", 300)
    run = moving._run

    def once(*arguments: Any) -> Any:
        if AuditEntry.objects.exists():
            raise RedisConnectionError("gone")
        return run(*arguments)

    monkeypatch.setattr(moving, "_run", once)
    moved = services.move("7", "7:y", actor=ACTOR)
    assert (moved.moved, moved.left, moved.stopped) == (256, -1, "redis")
    last = AuditEntry.objects.latest("number")
    assert json.loads(last.after_json) == {"to": "7:y", "moved": 0, "stopped": "redis"}


def test_who_may_not(server: RedisServer) -> None:
    for act in (
        lambda: services.purge("9", actor=NOBODY),
        lambda: services.purge_twin(9, actor=NOBODY),
        lambda: services.move("7", "7:", actor=NOBODY),
        lambda: services.export("7", actor=NOBODY),
    ):
        with pytest.raises(Denied):
            act()
    assert len(listed()) == 6


def test_export(server: RedisServer) -> None:
    put(server, "7", request((3, None), TO, b"hidden", uid="=1+1", command='a "b",c'))
    lines = list(services.export("7", actor=ACTOR))
    documents = [json.loads(line) for line in lines]
    assert [document["uid"] for document in documents] == ["m0", "m1", "m2", "=1+1"]
    assert tuple(documents[0]) == services.EXPORTED and "hidden" not in "".join(lines)
    text = "".join(services.export("7", "csv", actor=ACTOR))
    rows = list(csv.DictReader(text.splitlines()))
    assert [row["uid"] for row in rows] == ["m0", "m1", "m2", "'=1+1"]
    assert rows[3]["command"] == 'a "b",c'
    assert list(services.export("7:none", actor=ACTOR)) == []
    with pytest.raises(Invalid):
        services.export("7", "xml", actor=ACTOR)
    assert {entry.action for entry in AuditEntry.objects.all()} == {"queue.export"}


@pytest.mark.usefixtures("no_redis")
def test_without_redis() -> None:
    for act in (
        lambda: services.list_queues(),
        lambda: services.get_queue("7"),
        lambda: services.list_headers("7"),
        lambda: services.purge_twin(9, actor=ACTOR),
        lambda: services.move("7", "7:x", actor=ACTOR),
    ):
        with pytest.raises(Away):
            act()
    assert not AuditEntry.objects.exists()

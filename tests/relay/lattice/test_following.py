"""Findings of the monitor in the audit log: each is counted once, and entries are few."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import OperationalError

from proto.lattice import state
from relay.audit import services as audit
from relay.audit.models import AuditEntry
from relay.lattice import following
from relay.lattice.following import BATCH, MAX_ORIGINS, OTHERS, WINDOW_S, follow
from relay.lattice.models import FindingsRead
from tests.support.lattice_state import find
from tests.support.redis_servers import RedisServer

pytestmark = pytest.mark.django_db

NOW = time.time()


def entries() -> dict[tuple[str, str], int]:
    """Return the counts of findings by reason and origin."""
    rows = AuditEntry.objects.filter(action="lattice.finding").order_by("number")
    found: dict[tuple[str, str], int] = {}
    for row in rows:
        key = (row.after["reason"], row.target)
        found[key] = found.get(key, 0) + row.after["count"]
    return found


def test_one_entry_for_each_reason_and_origin(site_redis: RedisServer) -> None:
    assert follow(NOW) == 0
    for number in range(3):
        find(site_redis, "replay", origin="wasmbus://MA", at=NOW + number, id=f"id{number}",
             text="seen before", operation="A.B", host_id="NH")  # fmt: skip
    find(site_redis, "hash", origin="wasmbus://MA")
    find(site_redis, "undecodable", subject="wasmbus.rpc.default.MB")
    assert follow(NOW) == 0 and entries() == {}, "the five minutes are not over"
    assert follow(NOW + WINDOW_S) == 3
    assert entries() == {
        ("replay", "wasmbus://MA"): 3,
        ("hash", "wasmbus://MA"): 1,
        ("undecodable", "wasmbus.rpc.default.MB"): 1,
    }
    entry = AuditEntry.objects.get(target="wasmbus://MA", after_json__contains="replay")
    assert (entry.actor, entry.face) == ("system", "system")
    assert entry.after["first"] < entry.after["last"]
    sample = entry.after["sample"]
    assert (sample["id"], sample["text"], sample["operation"]) == ("id0", "seen before", "A.B")
    assert follow(NOW + 9 * WINDOW_S) == 0, "told twice"
    audit.verify()


def test_a_new_window_begins_with_the_next_finding(site_redis: RedisServer) -> None:
    find(site_redis, "hash", origin="a")
    follow(NOW)
    find(site_redis, "hash", origin="b")
    assert follow(NOW + WINDOW_S + 1) == 1
    assert follow(NOW + 2 * WINDOW_S) == 0
    assert follow(NOW + 2 * WINDOW_S + 1) == 1
    assert entries() == {("hash", "a"): 1, ("hash", "b"): 1}


def test_a_flood_of_claimed_origins(site_redis: RedisServer) -> None:
    for number in range(MAX_ORIGINS + 30):
        find(site_redis, ("hash", "issuer")[number % 2], origin=f"wasmbus://M{number}")
    find(site_redis, "hash", count=70_000, text="70,000 more")
    follow(NOW)
    assert follow(NOW + WINDOW_S) == MAX_ORIGINS + 2
    found = entries()
    assert found["hash", OTHERS] == 70_015 and found["issuer", OTHERS] == 15
    assert sum(found.values()) == 70_050


def test_more_than_one_batch(site_redis: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "BATCH", 4)
    for _ in range(11):
        find(site_redis, "hash", origin="a")
    follow(NOW)
    follow(NOW + WINDOW_S)
    assert entries() == {("hash", "a"): 11} and BATCH > 4


def test_a_reader_that_dies_counts_nothing_twice(
    site_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    find(site_redis, "hash", origin="a")
    follow(NOW)
    find(site_redis, "hash", origin="b")

    def break_off(*_: Any, **__: Any) -> None:
        raise OperationalError("the database went away")

    with monkeypatch.context() as patch:
        patch.setattr(FindingsRead, "save", break_off)
        with pytest.raises(OperationalError):
            follow(NOW + WINDOW_S)  # its entry was written, in the transaction that failed
    assert entries() == {}
    follow(NOW + WINDOW_S)
    follow(NOW + 3 * WINDOW_S)
    assert entries() == {("hash", "a"): 1, ("hash", "b"): 1}


def test_two_readers_at_once(site_redis: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    find(site_redis, "hash", origin="a")
    follow(NOW)
    find(site_redis, "hash", origin="a")
    redis, read = site_redis.client(), []

    def xrange(*given: Any, **more: Any) -> Any:
        read.append(redis.xrange(*given, **more))
        if len(read) == 1:
            follow(NOW)  # another reader, between the read and the write
        return read[0]

    with monkeypatch.context() as patch:
        patch.setattr(following, "client", lambda: SimpleNamespace(xrange=xrange))
        follow(NOW)
    assert len(read) == 2
    follow(NOW + WINDOW_S)
    assert entries() == {("hash", "a"): 2}


def test_redis_lost_the_stream(site_redis: RedisServer) -> None:
    find(site_redis, "hash", origin="a")
    follow(NOW)
    site_redis.run("FLUSHALL")
    follow(NOW)
    row = b'{"reason": "hash", "origin": "b"}'
    for number in (1, 2, 3):  # the clock was set back: ids are lower than those already read
        site_redis.run("XADD", state.FINDINGS, f"{number}-0", state.FINDING_FIELD, row)
        follow(NOW)
    site_redis.run("XADD", state.FINDINGS, "4-0", state.FINDING_FIELD, b"malformed")
    follow(NOW + WINDOW_S)
    assert entries() == {("hash", "a"): 1, ("hash", "b"): 2}, "the first only told where to read on"

"""One relay under any spelling: decisions, look-ups, and data that older releases stored."""

from __future__ import annotations

import json
from io import StringIO
from types import SimpleNamespace

import pytest
from django.core.management import call_command

from relay.access.actor import SYSTEM
from relay.federation import counters, letter_lists, listing, services
from relay.federation.models import RelayNode
from relay.queues import keys
from relay.sessions.control import Control
from tests.relay.federation.stored import add_dead, add_partner, add_pending, message
from tests.relay.federation.test_services import decided
from tests.support.redis_servers import RedisServer

pytestmark = pytest.mark.django_db(transaction=True)

NAME = "b.example"
SPELLINGS = ("B.EXAMPLE", "b.example.", "b.example:443")


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_decisions_are_about_the_relay_whatever_it_is_called(
    site_redis: RedisServer, spelling: str
) -> None:
    services.block(spelling, actor=SYSTEM)
    services.save(RelayNode(domain=spelling, blocked=True, note="spam"), actor=SYSTEM)
    assert decided(site_redis) == {f"relay:{NAME}": "blocked"}
    assert [node.domain for node in RelayNode.objects.all()] == [NAME]
    assert listing.get(spelling).domain == NAME
    told = StringIO()
    call_command("rmb_relays", "show", spelling, "--json", stdout=told)
    assert (json.loads(told.getvalue())["domain"], json.loads(told.getvalue())["flags"]) == (
        NAME,
        ["blocked"],
    )
    services.unblock(spelling, actor=SYSTEM)
    assert decided(site_redis) == {}
    services.forget([spelling], actor=SYSTEM)
    assert not RelayNode.objects.exists()


def test_rows_of_an_older_release_are_united(site_redis: RedisServer) -> None:
    RelayNode.objects.create(domain=NAME, note="ours")
    RelayNode.objects.create(domain="B.EXAMPLE", blocked=True, note="spam")
    RelayNode.objects.create(domain="b.example.", trusted=True, note="spam")
    RelayNode.objects.create(domain="C.example", paused=True)
    RelayNode.objects.create(domain="no_name", paused=True)
    services.publish_all()
    rows = {node.domain: (*node.flags, node.note) for node in RelayNode.objects.all()}
    assert rows == {
        NAME: ("trusted", "blocked", "ours\nspam"),
        "c.example": ("paused", ""),
        "no_name": ("paused", ""),
    }
    assert decided(site_redis)[f"relay:{NAME}"] == "trusted blocked"


def test_states_of_an_older_release_are_united(site_redis: RedisServer) -> None:
    add_partner(site_redis, NAME, sent=3, heard=70, kind="ours")
    add_partner(site_redis, "B.EXAMPLE", sent=4, received=2, heard=60, latency_ms=5)
    add_partner(site_redis, "C.example")
    for name, at in ((NAME, 10), ("B.EXAMPLE", 20)):
        site_redis.run("ZADD", keys.failures(name), at, f"{at}-x")
        site_redis.run("EXPIRE", keys.failures(name), 3000)
        field = counters.field(counters.SUCCESS, name)
        site_redis.run("HSET", keys.FEDERATION_COUNTERS, field, at)
    services.publish_all()
    services.publish_all()
    client = site_redis.client()
    assert client.smembers(keys.PARTNERS) == {NAME.encode(), b"c.example"}
    assert client.hgetall(keys.partner(NAME)) == {
        **{b"sent": b"7", b"received": b"2", b"heard": b"70"},
        **{b"kind": b"ours", b"latency_ms": b"5"},
    }
    assert not client.exists(keys.partner("B.EXAMPLE"), keys.failures("B.EXAMPLE"))
    assert client.zrange(keys.failures(NAME), 0, -1) == [b"10-x", b"20-x"]
    assert 0 < client.ttl(keys.failures(NAME)) <= 3000
    assert client.hgetall(keys.FEDERATION_COUNTERS) == {f"success|{NAME}".encode(): b"30"}


def test_letters_of_an_older_release_are_found(site_redis: RedisServer) -> None:
    dead = add_dead(site_redis, message(), **{"for": "A.example_B.Example."})
    pending = add_pending(site_redis, message(), account="B.EXAMPLE:443")
    for spelling in (NAME, *SPELLINGS):
        assert [each.entry for each in letter_lists.dead(relay=spelling).items] == [dead]
        assert [each.entry for each in letter_lists.waiting(relay=spelling).items] == [pending]
    assert services.requeue_all("B.example", actor=SYSTEM) == 1


def test_workers_read_decisions_of_an_older_release() -> None:
    """Workers merge decisions of both releases: while relays of both run, either may publish."""

    worker = SimpleNamespace(
        wall_s=lambda: 0.0,
        options=SimpleNamespace(limit=None),
        on_traces=lambda traces: None,
        router=SimpleNamespace(generation=0),
        meters=SimpleNamespace(change=lambda default, overrides: None),
        room=SimpleNamespace(change=lambda bounds: None),
        sessions=(),
    )
    control = Control(worker)  # type: ignore[arg-type]
    control._apply({"relay:B.EXAMPLE": "blocked", f"relay:{NAME}": "paused"})
    assert control.relays == {NAME: frozenset({"blocked", "paused"})}

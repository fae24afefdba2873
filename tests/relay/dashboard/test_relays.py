"""The pages of partner relays: the map, the table, one relay, and decisions about it."""

from __future__ import annotations

import csv
import json
import re
import time
from io import StringIO

import pytest
from django.test import Client

from relay.access.matrix import Role
from relay.dashboard import graph
from relay.federation import outbox, traffic
from relay.federation.live import PartnerState
from relay.federation.models import RelayNode
from relay.queues import keys
from relay.queues.held import pack
from tests.relay.dashboard.conftest import SignIn
from tests.relay.federation.stored import PARTNER, add_dead, add_partner, add_pending, message
from tests.relay.ops.test_control import fields
from tests.support.redis_servers import RedisServer

pytestmark = pytest.mark.django_db(transaction=True)

RELAYS = "/console/relays/"
ONE = f"{RELAYS}{PARTNER}/"


@pytest.fixture(autouse=True)
def _fresh_meter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traffic, "meter", traffic.Meter())


def page(client: Client, path: str, **query: str) -> str:
    answer = client.get(path, query)
    assert answer.status_code == 200, (path, answer.status_code)
    return answer.content.decode()


def shown(client: Client, **query: str) -> list[str]:
    """Return the domains in the table, in its order."""
    answer = client.get(RELAYS, {"export": "csv", **query})
    rows = csv.DictReader(StringIO(b"".join(answer).decode()))
    return [row["domain"] for row in rows]


def add_backed_off(server: RedisServer, domain: str = PARTNER) -> None:
    now = time.time()
    add_partner(server, domain, retry_at=now + 40.4, failures=2, last_error="answer 503",
                last_success=now - 7200, last_failure=now - 180, sent=4242, received=1717,
                latency_ms=12.34)  # fmt: skip
    for at in (now - 10, now - 20, now - 7000):
        server.run("ZADD", keys.failures(domain), at, f"{at}")


def test_empty(sign_in: SignIn, site_redis: RedisServer) -> None:
    text = page(sign_in(Role.VIEWER), RELAYS)
    assert "No partner relay is known yet" in text
    assert "<svg" not in text
    assert "Add a relay" not in text, "a viewer may not"


def test_a_relay_in_traffic_as_it_does(sign_in: SignIn, site_redis: RedisServer) -> None:
    add_backed_off(site_redis)
    add_pending(site_redis, message())
    client = sign_in(Role.OPERATOR)
    text = page(client, RELAYS)
    for expected in (f'href="{ONE}"', "backed off", "answer 503", ">12.3 ms<",
                     "c-graph-resting", "1 message waiting"):  # fmt: skip
        assert expected in text, expected
    assert re.search(">in (3[0-9]|40) s<", text)
    text = page(client, ONE)
    for expected in ("backed off", "answer 503", ">4,242<", ">1,717<", ">12.3 ms<", "test.cmd",
                     "Add record"):  # fmt: skip
        assert expected in text, expected
    assert "secret payload" not in text
    assert not RelayNode.objects.exists(), "looking writes nothing"


def test_rates_are_of_the_last_minute(
    sign_in: SignIn, site_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_partner(site_redis, last_success=time.time(), sent=1000, received=50)
    now = time.monotonic()
    traffic.meter.note([PartnerState(PARTNER, sent=400, received=20)], now - 30)
    text = page(sign_in(Role.VIEWER), RELAYS)
    found = re.search(rf"{PARTNER}: working, ([\d.]+)/s out, ([\d.]+)/s in", text)
    assert found and [float(each) for each in found.groups()] == pytest.approx([20, 1], rel=0.1)


def test_order_filters_and_export(sign_in: SignIn, site_redis: RedisServer) -> None:
    add_backed_off(site_redis, "bad.example")
    add_partner(site_redis, "good.example", last_success=time.time(), sent=7)
    add_partner(site_redis, "new.example")
    RelayNode.objects.create(domain="off.example", blocked=True, trusted=True)
    client = sign_in(Role.VIEWER)
    by_health = ["bad.example", "off.example", "new.example", "good.example"]
    assert shown(client) == by_health, "the worst first"
    assert shown(client, order="domain") == sorted(by_health)
    assert shown(client, order="-sent")[:2] == ["bad.example", "good.example"]
    assert shown(client, state="blocked") == shown(client, decided="trusted") == ["off.example"]
    assert shown(client, domain="OO") == ["good.example"]
    assert "Nothing matches" in page(client, RELAYS, domain="zzz")
    alone = client.get(RELAYS, headers={"HX-Target": "relay-map"}).content.decode()
    assert "<svg" in alone and "<table" not in alone and "<html" not in alone
    alone = client.get(RELAYS, headers={"HX-Target": "table-relays"}).content.decode()
    assert "<svg" not in alone and "good.example" in alone


def test_the_map_is_bounded(sign_in: SignIn, site_redis: RedisServer) -> None:
    for number in range(graph.MAX_SHOWN + 3):
        add_partner(site_redis, f"r{number:03}.{'long-' * 9}example", sent=number)
    text = page(sign_in(Role.VIEWER), RELAYS, limit="25")
    assert text.count('class="c-graph-node"') == graph.MAX_SHOWN
    assert "The 40 busiest; 3 more in the table." in text
    assert text.count("<circle") == graph.MAX_SHOWN + 1
    places = re.findall(r'class="c-graph-name" x="([\d.]+)" y="([\d.]+)"', text)
    assert len(set(places)) == len(places), "no name stands on another"


def test_decisions(sign_in: SignIn, site_redis: RedisServer) -> None:
    add_partner(site_redis)
    client = sign_in(Role.OPERATOR)
    for verb, flags, done in (
        ("trust", "trusted", "is trusted"),
        ("pause", "trusted paused", "is paused"),
        ("block", "trusted paused blocked", "is blocked"),
        ("resume", "trusted blocked", "is resumed"),
        ("unblock", "trusted", "is not blocked any more"),
        ("distrust", None, "is not trusted any more"),
    ):
        assert f"{ONE}{verb}/" in page(client, RELAYS), "only what changes something is offered"
        before = fields(site_redis).get(f"relay:{PARTNER}")
        assert PARTNER in page(client, f"{ONE}{verb}/")
        assert fields(site_redis).get(f"relay:{PARTNER}") == before, "asking does nothing"
        assert client.post(f"{ONE}{verb}/")["Location"] == RELAYS
        assert fields(site_redis).get(f"relay:{PARTNER}") == flags
        text = page(client, RELAYS)
        assert f"{PARTNER} {done}" in text
        assert f"{ONE}{verb}/" not in text
    assert client.post(f"{ONE}explode/").status_code == 404
    assert client.post(f"{RELAYS}nobody.example/block/").status_code == 404


def test_questions_name_what_is_lost(sign_in: SignIn, site_redis: RedisServer) -> None:
    add_backed_off(site_redis)
    add_pending(site_redis, message())
    client = sign_in(Role.OPERATOR)
    assert "of the messages that wait for it (1 message), all" in page(client, f"{ONE}pause/")
    text = page(client, f"{ONE}block/")
    assert "Messages that wait only for it (1 message)" in text and "cannot be undone" not in text
    packed = pack(12_000, 12_000)
    site_redis.run("HINCRBY", keys.held(PARTNER), outbox.TOTAL, packed)
    assert "2,001 of them: 10,000 dead letters are kept" in page(client, f"{ONE}block/")
    assert "its 2 failures" in page(client, f"{ONE}reset/")
    text = page(client, f"{ONE}forget/")
    assert "its counts: 4,242 messages out, 1,717 in" in text
    client.post(f"{ONE}reset/")
    assert "its rank" not in page(client, f"{ONE}forget/")
    assert site_redis.run("EXISTS", keys.failures(PARTNER)) == 0
    client.post(f"{ONE}forget/")
    assert client.get(ONE).status_code == 404


def test_one_relay_with_its_messages(sign_in: SignIn, site_redis: RedisServer) -> None:
    add_partner(site_redis)
    entry = add_pending(site_redis, message(uid="waits-here"))
    add_pending(site_redis, message(uid="for-two"), account=f"a.example_{PARTNER}")
    add_pending(site_redis, message(uid="elsewhere"), account="other.example")
    add_dead(site_redis, message(uid="died-here"))
    add_dead(site_redis, message(uid="died-elsewhere"), **{"for": "other.example"})
    for relay in (PARTNER, "other.example"):
        tried = {"at": 1_795_218_450, "relay": relay, "answer": "answer 503", "ms": 40}
        site_redis.run("RPUSH", keys.tries(4, entry), json.dumps(tried))
    RelayNode.objects.create(domain=PARTNER, note="of a friend")
    client = sign_in(Role.OPERATOR)
    text = page(client, ONE)
    for expected in ("waits-here", "for-two", "died-here", "of a friend", "Edit record",
                     f"/console/outbox/4/{entry}/", "Requeue dead letters"):  # fmt: skip
        assert expected in text, expected
    for absent in ("elsewhere", "secret payload"):
        assert absent not in text, absent
    alone = client.get(ONE, headers={"HX-Target": "table-tries"}).content.decode()
    assert alone.count("answer 503") == 1, "those at this relay"
    alone = client.get(ONE, headers={"HX-Target": "relay-facts"}).content.decode()
    assert "of a friend" in alone and "<table" not in alone


def test_dead_letters_of_a_relay_are_sent_again(sign_in: SignIn, site_redis: RedisServer) -> None:
    for uid in ("first", "second"):
        add_dead(site_redis, message(uid=uid))
    add_dead(site_redis, message(), **{"for": f"not-{PARTNER}"})
    client = sign_in(Role.OPERATOR)
    assert "all 2" in page(client, f"{ONE}letters/")
    assert client.post(f"{ONE}letters/")["Location"] == ONE
    found = site_redis.client().xrange(keys.outbox(4))
    assert [b"first" in found[0][1][b"_"], b"second" in found[1][1][b"_"]] == [True, True]
    assert site_redis.run("XLEN", keys.DEAD_LETTERS) == 1
    assert client.get(f"{ONE}letters/").status_code == 404


def test_looking_is_not_acting(sign_in: SignIn, site_redis: RedisServer) -> None:
    add_backed_off(site_redis)
    add_dead(site_redis, message())
    client = sign_in(Role.VIEWER)
    for path in (RELAYS, ONE):
        assert "data-ask" not in page(client, path)
    for verb in ("pause", "block", "trust", "reset", "forget", "letters"):
        assert client.post(f"{ONE}{verb}/").status_code == 403, verb
    assert fields(site_redis) == {}
    assert site_redis.run("XLEN", keys.DEAD_LETTERS) == 1


@pytest.mark.usefixtures("no_redis")
def test_without_redis_the_pages_say_so(sign_in: SignIn) -> None:
    RelayNode.objects.create(domain=PARTNER)
    client = sign_in(Role.OPERATOR)
    for path in (RELAYS, ONE, f"{ONE}reset/"):
        answer = client.get(path)
        assert answer.status_code == 503
        assert b"Redis does not answer" in answer.content


def test_a_relay_entered_by_hand(admin_client: Client, site_redis: RedisServer) -> None:
    path = "/console/relay-record/"
    form = {"domain": "B.EXAMPLE.:443", "blocked": "on", "note": "spammer"}
    assert admin_client.post(path, form).status_code == 302
    assert fields(site_redis)["relay:b.example"] == "blocked"
    again = admin_client.post(path, {"domain": "b.Example"})
    assert "already exists" in again.content.decode(), "nothing that was decided is overwritten"
    assert RelayNode.objects.get().blocked
    row = f"{path}?domain=b.example"
    assert "spammer" in page(admin_client, row)
    assert admin_client.post(row, {"domain": "c.example", "note": ""}).status_code == 302
    assert "relay:b.example" not in fields(site_redis)
    assert RelayNode.objects.get().domain == "b.example"
    wrong = {"a_b": "a host has letters", "https://a.example": "must be host or host:port"}
    for domain, why in wrong.items():
        assert why in admin_client.post(path, {"domain": domain}).content.decode()
    assert admin_client.get(f"{path}?domain=%00").status_code == 422


def test_a_record_is_not_for_viewers(sign_in: SignIn, site_redis: RedisServer) -> None:
    RelayNode.objects.create(domain=PARTNER)
    row = f"/console/relay-record/?domain={PARTNER}"
    assert sign_in(Role.VIEWER).post(row, {"blocked": "on"}).status_code == 403
    assert fields(site_redis) == {}

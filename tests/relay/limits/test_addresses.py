"""Bans of addresses: the services, and the command."""

from __future__ import annotations

import json
from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from relay.access.actor import SYSTEM, Actor, Face
from relay.access.errors import Conflict, Denied, Invalid, NotFound
from relay.audit.models import AuditEntry
from relay.limits import addresses, hits, services
from relay.limits.models import AddressBan
from relay.ops import pending
from relay.queues import keys
from tests.relay.limits.test_services import decided
from tests.support.redis_servers import RedisServer

pytestmark = pytest.mark.django_db(transaction=True)

OLGA = Actor("olga", Face.ADMIN, "2001:db8::7", None)


def test_bans(site_redis: RedisServer) -> None:
    addresses.ban("::ffff:192.0.2.0/120", "noise", actor=SYSTEM)
    addresses.ban("2001:DB8::/32", actor=SYSTEM)
    services.ban(7, "spam", actor=SYSTEM)
    expected = {"ban_address:192.0.2.0/24": "noise", "ban_address:2001:db8::/32": "banned"}
    assert decided(site_redis) == {**expected, "ban:7": "spam"}
    addresses.ban("192.0.2.0/24", "more noise", actor=SYSTEM)
    assert decided(site_redis)["ban_address:192.0.2.0/24"] == "more noise"
    with pytest.raises(NotFound, match=r"192\.0\.2\.7 is not banned; 192\.0\.2\.0/24 is, which"):
        addresses.lift("192.0.2.7", actor=SYSTEM)
    assert addresses.lift("192.0.2.0/24", actor=OLGA) == "192.0.2.0/24"
    assert "ban_address:192.0.2.0/24" not in decided(site_redis)
    told = AuditEntry.objects.filter(target="192.0.2.0/24").order_by("number")
    assert [(each.action, each.actor) for each in told] == [
        ("ban.set", "system"), ("ban.set", "system"), ("ban.lift", "olga"),
    ]  # fmt: skip
    assert told[1].before["reason"] == "noise" and told[1].after["reason"] == "more noise"


def test_a_ban_with_an_end(site_redis: RedisServer) -> None:
    now = timezone.now()
    addresses.ban("192.0.2.7", "noise", now + timedelta(hours=1), actor=SYSTEM)
    assert services.lift_expired_bans(now) == 0
    assert addresses.in_force().covers("192.0.2.7")
    assert services.lift_expired_bans(now + timedelta(hours=1)) == 1
    assert decided(site_redis) == {} and not AddressBan.objects.exists()


def test_what_redis_lost_is_published_again(site_redis: RedisServer) -> None:
    addresses.ban("192.0.2.7", "noise", actor=SYSTEM)
    addresses.ban("192.0.2.8", "old", actor=SYSTEM)
    over = timezone.now() - timedelta(hours=1)
    AddressBan.objects.filter(network="192.0.2.8").update(until=over)
    site_redis.run("HDEL", "relay:control", "ban_address:192.0.2.7")
    site_redis.run("HSET", "relay:control", "ban_address:192.0.2.9", "stale")
    services.publish_all()
    assert decided(site_redis) == {"ban_address:192.0.2.7": "noise"}


@pytest.mark.usefixtures("no_redis")
def test_a_ban_without_redis_is_pending() -> None:
    addresses.ban("192.0.2.7", actor=SYSTEM)
    assert AddressBan.objects.exists() and pending.waiting() == ["limits"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("127.0.0.1", "holds addresses of this machine itself; use force"),
        ("127.0.0.0/8", "this machine"),
        ("::1", "this machine"),
        ("::ffff:127.0.0.1", "this machine"),
        ("2001:db8::/32", "your own address, 2001:db8::7; use force"),
    ],
)
def test_what_an_operator_hardly_means(site_redis: RedisServer, text: str, complaint: str) -> None:
    with pytest.raises(Invalid, match=complaint) as refused:
        addresses.ban(text, actor=OLGA)
    assert refused.value.fields.keys() == {"network"}
    assert not AddressBan.objects.exists()
    addresses.ban(text, actor=OLGA, force=True)
    assert len(decided(site_redis)) == 1


def test_what_cannot_be_banned(site_redis: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Invalid, match="too wide"):
        addresses.ban("0.0.0.0/0", actor=SYSTEM, force=True)
    with pytest.raises(Invalid, match="is over"):
        addresses.ban("192.0.2.7", until=timezone.now(), actor=SYSTEM)
    with pytest.raises(Invalid):
        addresses.ban("192.0.2.7", "x" * 121, actor=SYSTEM)
    with pytest.raises(Denied):
        addresses.ban("192.0.2.7", actor=Actor("nobody", Face.REST, "", frozenset()))
    monkeypatch.setattr(addresses, "MAX_BANS", 1)
    addresses.ban("192.0.2.7", actor=SYSTEM)
    addresses.ban("192.0.2.7", "again", actor=SYSTEM)
    with pytest.raises(Conflict, match="lift some, or ban networks"):
        addresses.ban("192.0.2.8", actor=SYSTEM)


def test_searches_find_networks_around_an_address(site_redis: RedisServer) -> None:
    for text, reason in (("192.0.2.0/24", "noise"), ("198.51.100.7", "192 times")):
        addresses.ban(text, reason, actor=SYSTEM)

    def found(text: str) -> list[str]:
        return [each.network for each in addresses.search(text)]

    assert found("192.0.2.200") == ["192.0.2.0/24"]
    assert found("NOISE") == ["192.0.2.0/24"]
    assert found("192") == ["192.0.2.0/24", "198.51.100.7"]
    assert found("203.0.113.1") == []


def test_refused_addresses_say_whether_they_are_banned(site_redis: RedisServer) -> None:
    minute = int(timezone.now().timestamp()) // 60
    for name in ("192.0.2.7", "198.51.100.7", "unix"):
        site_redis.run("ZADD", keys.hits("handshake", minute), 5, name)
    addresses.ban("192.0.2.0/24", actor=SYSTEM)
    assert {each.address: each.banned for each in hits.top().addresses} == {
        "192.0.2.7": True, "198.51.100.7": False, "unix": False,
    }  # fmt: skip


def run(*arguments: str) -> str:
    out = StringIO()
    call_command("rmb_ban", *arguments, stdout=out, stderr=StringIO())
    return out.getvalue()


def test_the_command(site_redis: RedisServer) -> None:
    assert "192.0.2.0/24 is banned until" in run("set", "192.0.2.0/24", "--for", "24h")
    assert run("set", "2001:db8::7", "--reason", "noise").strip() == "2001:db8::7 is banned"
    with pytest.raises(CommandError, match="this machine itself; use force"):
        run("set", "127.0.0.1")
    run("set", "127.0.0.1", "--force")
    listed = run("list", "--addresses")
    assert "2001:db8::7         noise" in listed and "192.0.2.0/24        - until" in listed
    assert run("list") == ""
    (first, *_) = json.loads(run("list", "--addresses", "--json"))
    assert (first["network"], first["banned"]) == ("127.0.0.1", True)
    assert run("lift", "2001:DB8:0::7").strip() == "2001:db8::7 is not banned any more"
    with pytest.raises(CommandError, match="2001:db8::7 is not banned"):
        run("lift", "2001:db8::7")

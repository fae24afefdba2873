"""Limits and bans of SBD: the services and the commands."""

from __future__ import annotations

import dataclasses
import json
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from proto.sbd.frames import path_of_key
from relay.access.actor import SYSTEM, Actor, Face
from relay.access.errors import Conflict, Denied, Invalid, NotFound
from relay.audit.models import AuditEntry
from relay.limits import sbd, services
from relay.limits.models import MAX_KBIT_PER_S, SbdLimit
from relay.ops import pending
from tests.relay.limits.test_services import decided
from tests.support.redis_servers import RedisServer

pytestmark = pytest.mark.django_db(transaction=True)

KEY = path_of_key(bytes(range(32)))
OTHER = path_of_key(b"\xfb" * 32)
DASH = path_of_key(b"\xf8" + bytes(31))
"""A key that begins with a dash, like an option of a command."""


def test_a_ban_and_a_limit_of_a_key(site_redis: RedisServer) -> None:
    sbd.ban(f" {KEY} ", "flood", actor=SYSTEM)
    sbd.set_limit(KEY, 800, actor=SYSTEM)
    assert decided(site_redis) == {f"ban_key:{KEY}": "flood", f"limit_key:{KEY}": "800"}
    assert sbd.lift_ban(KEY, actor=SYSTEM) == KEY
    assert decided(site_redis) == {f"limit_key:{KEY}": "800"}
    sbd.set_limit(KEY, 0, actor=SYSTEM)
    assert decided(site_redis) == {f"limit_key:{KEY}": "0"}
    sbd.set_limit(KEY, None, actor=SYSTEM)
    assert decided(site_redis) == {} and not SbdLimit.objects.exists()
    told = AuditEntry.objects.filter(target=KEY).order_by("number")
    assert [each.action for each in told] == [
        "ban.set", "limit.set", "ban.lift", "limit.set", "limit.set",
    ]  # fmt: skip
    assert told[3].before["kbit_per_s"] == 800 and told[3].after["kbit_per_s"] == 0
    assert told[4].after is None
    for undo in (lambda: sbd.lift_ban(KEY, actor=SYSTEM), lambda: set_none(KEY)):
        with pytest.raises(NotFound, match=KEY):
            undo()


def set_none(subject: str) -> None:
    sbd.set_limit(subject, None, actor=SYSTEM)


def test_a_limit_of_a_network(site_redis: RedisServer) -> None:
    sbd.set_limit("::ffff:192.0.2.0/120", 800, actor=SYSTEM)
    sbd.set_limit("2001:DB8::7", 8000, actor=SYSTEM)
    expected = {"limit_address:192.0.2.0/24": "800", "limit_address:2001:db8::7": "8000"}
    assert decided(site_redis) == expected
    set_none("192.0.2.0/24")
    del expected["limit_address:192.0.2.0/24"]
    assert decided(site_redis) == expected


def test_a_ban_with_an_end(site_redis: RedisServer) -> None:
    now = timezone.now()
    sbd.ban(KEY, "flood", now + timedelta(hours=1), actor=SYSTEM)
    sbd.set_limit(KEY, 800, actor=SYSTEM)
    assert services.lift_expired_bans(now) == 0
    assert services.lift_expired_bans(now + timedelta(hours=1)) == 1
    assert decided(site_redis) == {f"limit_key:{KEY}": "800"}


def test_what_redis_lost_is_published_again(site_redis: RedisServer) -> None:
    sbd.ban(KEY, "flood", actor=SYSTEM)
    sbd.ban(OTHER, "old", actor=SYSTEM)
    over = timezone.now() - timedelta(hours=1)
    SbdLimit.objects.filter(pk=OTHER).update(banned_until=over)
    sbd.set_limit("192.0.2.7", 800, actor=SYSTEM)
    site_redis.run("HDEL", "relay:control", f"ban_key:{KEY}")
    for stale in ("ban_key:stale", "limit_key:stale", "limit_address:stale"):
        site_redis.run("HSET", "relay:control", stale, "1")
    services.publish_all()
    assert decided(site_redis) == {f"ban_key:{KEY}": "flood", "limit_address:192.0.2.7": "800"}


@pytest.mark.usefixtures("no_redis")
def test_a_ban_without_redis_is_pending() -> None:
    sbd.ban(KEY, actor=SYSTEM)
    assert SbdLimit.objects.exists() and pending.waiting() == ["limits"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "'' is not a key: expected 43 characters of base64url without padding"),
        (KEY[:-1], "is not a key"),
        (f"{KEY}=", "is not a key"),
        (KEY[:-1] + "B", "is not a key"),
        (f"A{'/' * 42}", "is not a key"),
        (path_of_key(bytes(32)), "begins with 28 zero bytes"),
        ("x" * 1000, "'x{64}' is not"),
    ],
)
def test_what_is_not_a_key(site_redis: RedisServer, text: str, complaint: str) -> None:
    with pytest.raises(Invalid, match=complaint) as refused:
        sbd.ban(text, actor=SYSTEM)
    assert refused.value.fields.keys() == {"key"}
    assert "write it as in the path" in str(refused.value)
    with pytest.raises(Invalid) as refused:
        sbd.set_limit(text, 1, actor=SYSTEM)
    assert refused.value.fields.keys() == {"subject"}


def test_what_is_refused(
    site_redis: RedisServer, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    for wrong in (-1, MAX_KBIT_PER_S + 1):
        with pytest.raises(Invalid, match=rf"{wrong} kbit/s must be between 0 \(no limit\) and"):
            sbd.set_limit(KEY, wrong, actor=SYSTEM)
    with pytest.raises(Invalid, match=r"192\.0\.2\.7/24 is an address within"):
        sbd.set_limit("192.0.2.7/24", 1, actor=SYSTEM)
    with pytest.raises(Invalid, match="is over"):
        sbd.ban(KEY, until=timezone.now(), actor=SYSTEM)
    with pytest.raises(Invalid):
        sbd.ban(KEY, "x" * 121, actor=SYSTEM)
    with pytest.raises(Denied):
        sbd.ban(KEY, actor=Actor("nobody", Face.REST, "", frozenset()))
    section = dataclasses.replace(settings.RMB.sbd, ipv6_prefix=64)
    settings.RMB = dataclasses.replace(settings.RMB, sbd=section)
    with pytest.raises(Invalid, match=r"as sbd\.ipv6_prefix is 64; limit 2001:db8::/64"):
        sbd.set_limit("2001:db8::7", 1, actor=SYSTEM)
    monkeypatch.setattr(sbd, "MAX_ROWS", 1)
    sbd.ban(KEY, actor=SYSTEM)
    sbd.ban(KEY, "again", actor=SYSTEM)
    with pytest.raises(Conflict, match="remove some"):
        sbd.ban(OTHER, actor=SYSTEM)


def run(*arguments: str) -> str:
    out = StringIO()
    call_command(*arguments, stdout=out, stderr=StringIO())
    return out.getvalue()


def test_rmb_ban(site_redis: RedisServer) -> None:
    assert f"key {KEY} is banned until" in run("rmb_ban", "set", f"--key={KEY}", "--for", "24h")
    assert DASH.startswith("-")
    assert run("rmb_ban", "set", "--key", DASH, "--reason", "noise").strip() == (
        f"key {DASH} is banned"
    )
    listed = run("rmb_ban", "list", "--keys")
    assert f"{DASH}  noise" in listed and f"{KEY}  - until" in listed
    (first, *_) = json.loads(run("rmb_ban", "list", "--keys", "--json"))
    assert (first["key"], first["banned"]) == (DASH, True)
    assert run("rmb_ban", "lift", f"--key={KEY}").strip() == f"key {KEY} is not banned any more"
    with pytest.raises(CommandError, match="is not banned"):
        run("rmb_ban", "lift", f"--key={KEY}")
    with pytest.raises(CommandError, match="'nonsense' is not a key: expected 43 characters"):
        run("rmb_ban", "set", "--key", "nonsense")
    with pytest.raises(CommandError, match="one of the arguments target --key is required"):
        run("rmb_ban", "set")


def test_rmb_limit(site_redis: RedisServer) -> None:
    assert run("rmb_limit", "sbd", f"--key={KEY}", "800").strip() == f"{KEY}: 800 kbit/s"
    assert "no limit" in run("rmb_limit", "sbd", "--network", "192.0.2.0/24", "0")
    assert run("rmb_limit", "sbd").split() == [
        "192.0.2.0/24", "no", "limit", KEY, "800", "kbit/s",
    ]  # fmt: skip
    (first, _) = json.loads(run("rmb_limit", "sbd", "--json"))
    assert first == {
        "subject": "192.0.2.0/24", "is_key": False, "kbit_per_s": 0, "banned": False,
    }  # fmt: skip
    assert "of the settings" in run("rmb_limit", "sbd", f"--key={KEY}", "--clear")
    for wrong in ((f"--key={KEY}",), ("800",), (f"--key={KEY}", "800", "--clear"), ("--clear",)):
        with pytest.raises(CommandError, match="give --key or --network") as refused:
            run("rmb_limit", "sbd", *wrong)
        assert refused.value.returncode == 2

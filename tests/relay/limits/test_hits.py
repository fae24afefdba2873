"""The twins and addresses that hit limits most, as operators see them; the limit of all twins."""

from __future__ import annotations

import json
import time
from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from relay.access.actor import SYSTEM, Actor, Face
from relay.access.errors import Away, Denied, Invalid
from relay.audit.models import AuditEntry
from relay.limits import defaults, hits, services
from relay.limits.hits import AddressHits, TwinHits
from relay.limits.models import TwinLimit
from relay.queues import keys
from relay.twins.models import Twin
from tests.relay.limits.test_services import decided
from tests.support.redis_servers import RedisServer

pytestmark = pytest.mark.django_db(transaction=True)

NOBODY = Actor("nobody", Face.REST, "", frozenset())


@pytest.fixture
def refused(site_redis: RedisServer) -> RedisServer:
    """Add refusals of now, of half an hour ago, and of 90 minutes ago, too old to be shown."""
    minute = int(time.time()) // 60
    for ago, twin, count in ((0, "7", 3), (30, "7", 4), (30, "8", 5), (90, "9", 100)):
        site_redis.run("ZINCRBY", keys.hits("twin", minute - ago), count, twin)
    site_redis.run("ZINCRBY", keys.hits("address", minute), 3, "192.0.2.1")
    site_redis.run("ZINCRBY", keys.hits("handshake", minute - 1), 9, "192.0.2.2")
    site_redis.run("ZINCRBY", keys.hits("handshake", minute - 1), 1, "192.0.2.1")
    services.ban(8, actor=SYSTEM)
    services.set_limit(7, 1, 1, actor=SYSTEM)
    return site_redis


def run(*arguments: str) -> str:
    stdout = StringIO()
    call_command(*arguments, stdout=stdout, stderr=StringIO())
    return stdout.getvalue()


def test_top(refused: RedisServer) -> None:
    top = hits.top()
    assert top.twins == [
        TwinHits(7, 7, banned=False, limited=True), TwinHits(8, 5, banned=True, limited=False),
    ]  # fmt: skip
    assert top.addresses == [AddressHits("192.0.2.2", 0, 9), AddressHits("192.0.2.1", 3, 1)]
    assert [each.twin for each in hits.top(1).twins] == [7]
    assert [each.messages for each in hits.top(minutes=5).twins] == [3]
    by_minute = hits.of_twin(7)
    assert len(by_minute) == 60 and sum(count for _, count in by_minute) == 7
    with pytest.raises(Invalid):
        hits.top(0)


def test_the_limit_of_all_twins(site_redis: RedisServer) -> None:
    assert defaults.get().source == "settings"
    defaults.put(10, 2000, actor=SYSTEM)
    assert decided(site_redis) == {"limit": "10 2000"}
    found = defaults.get()
    assert (found.count, found.size, found.source) == (10, 2000, "operator")
    site_redis.run("FLUSHALL")
    services.publish_all()  # as the relay does when it starts
    assert decided(site_redis) == {"limit": "10 2000"}
    for wrong in ((1, 0), (0, 1), (-1, 5), (1 << 60, 5)):
        with pytest.raises(Invalid):
            defaults.put(*wrong, actor=SYSTEM)
    with pytest.raises(Denied):
        defaults.put(1, 1, actor=NOBODY)
    defaults.clear(actor=SYSTEM)
    assert decided(site_redis) == {} and defaults.get().source == "settings"
    defaults.clear(actor=SYSTEM)
    assert [entry.action for entry in AuditEntry.objects.all()] == ["limit.default"] * 2


def test_rmb_limit(refused: RedisServer) -> None:
    Twin.objects.create(id=9, account=bytes(32))
    assert run("rmb_limit", "set", "9", "5", "500") == "twin 9: 5 messages, 500 bytes per minute\n"
    assert [each["twin"] for each in json.loads(run("rmb_limit", "list", "--json"))] == [7, 9]
    assert "5 messages" in run("rmb_limit", "list")
    assert "refused  7 messages" in run("rmb_limit", "show", "7")
    assert json.loads(run("rmb_limit", "show", "8", "--json"))["banned"] is True
    assert json.loads(run("rmb_limit", "set", "9", "6", "600", "--json"))["count"] == 6
    assert json.loads(run("rmb_limit", "clear", "9", "--json"))["count"] is None
    assert "no limit (of the settings)" in run("rmb_limit", "default")
    assert "3 messages, 30 bytes" in run("rmb_limit", "default", "3", "30")
    assert json.loads(run("rmb_limit", "default", "--clear", "--json"))["source"] == "settings"
    text = run("rmb_limit", "hits")
    assert "7  limit of its own" in text and "192.0.2.2" in text
    assert json.loads(run("rmb_limit", "hits", "--json"))["twins"][0]["messages"] == 7
    for wrong in (("show", "x"), ("set", "7", "1", "0"), ("default", "1"), ("hits", "--limit=0")):
        with pytest.raises(CommandError):
            run("rmb_limit", *wrong)


@pytest.mark.parametrize(
    "words",
    [
        ("rmb_ban", "set", "66"),
        ("rmb_limit", "set", "66", "5", "500"),
        ("rmb_limit", "clear", "66"),
        ("rmb_limit", "waiting", "66", "5", "500", "0"),
    ],
)
def test_a_misspelt_twin_is_refused(site_redis: RedisServer, words: tuple[str, ...]) -> None:
    with pytest.raises(CommandError, match="does not know twin 66"):
        run(*words)
    assert not TwinLimit.objects.exists() and not AuditEntry.objects.exists()
    if "clear" not in words:
        run(*words, "--unknown")
        assert TwinLimit.objects.get().twin == 66
        run(*words)  # the decision made the twin known


def test_rmb_ban(refused: RedisServer) -> None:
    Twin.objects.create(id=5, account=bytes(32))
    assert run("rmb_ban", "set", "5", "--reason", "noise", "--for", "12h").startswith(
        "twin 5 is banned until "
    )
    assert decided(refused)["ban:5"] == "noise"
    found = json.loads(run("rmb_ban", "list", "--json"))
    assert [each["twin"] for each in found] == [5, 8] and found[1]["banned_until"] is None
    assert "noise until" in run("rmb_ban", "list")
    longer = json.loads(run("rmb_ban", "set", "5", "--reason", "more noise", "--json"))
    assert (longer["ban_reason"], longer["banned_until"]) == ("more noise", None)
    assert json.loads(run("rmb_ban", "lift", "5", "--json"))["banned"] is False
    assert "ban:5" not in decided(refused)
    for wrong in (("lift", "5"), ("set", "5", "--for", "1y"), ("set", "5", "--for", "9999d")):
        with pytest.raises(CommandError):
            run("rmb_ban", *wrong)
    entries = AuditEntry.objects.filter(action="ban.set", target="5")
    assert [entry.face for entry in entries] == ["cli", "cli"]


@pytest.mark.usefixtures("no_redis")
def test_without_redis() -> None:
    for ask in (hits.top, lambda: hits.of_twin(7)):
        with pytest.raises(Away):
            ask()


def test_lists_say_how_much_they_leave_out(refused: RedisServer) -> None:
    """A shortened list reports its total; twin 8 is banned and twin 7 has a limit here."""
    over = timezone.now() - timedelta(minutes=1)
    TwinLimit.objects.bulk_create(
        [
            *(TwinLimit(twin=twin, banned=True, banned_until=over) for twin in (1, 2, 3)),
            *(TwinLimit(twin=twin, banned=True, count=1, size=10) for twin in range(100, 160)),
        ]
    )
    for command, told, first in (
        ("rmb_ban", "2 of 61 banned twins shown", "8"),
        ("rmb_limit", "2 of 61 twins with a limit of their own shown", "7"),
    ):
        stdout, stderr = StringIO(), StringIO()
        call_command(command, "list", "--limit", "2", stdout=stdout, stderr=stderr)
        assert [line.split()[0] for line in stdout.getvalue().splitlines()] == [first, "100"]
        assert stderr.getvalue() == f"{told}\n"
    assert len(json.loads(run("rmb_ban", "list", "--json"))) == 50

"""`manage.py rmb_relays`."""

from __future__ import annotations

import json
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from relay.audit.models import AuditEntry
from relay.federation.models import RelayNode
from relay.queues import keys
from tests.relay.federation.stored import PARTNER, add_dead, message
from tests.relay.ops.test_control import fields
from tests.support.redis_servers import RedisServer

pytestmark = pytest.mark.django_db(transaction=True)

DOMAIN = "b.example"


def run(*arguments: str) -> str:
    stdout = StringIO()
    call_command("rmb_relays", *arguments, stdout=stdout, stderr=StringIO())
    return stdout.getvalue()


@pytest.fixture
def met(site_redis: RedisServer) -> RedisServer:
    """Add two relays that occurred in traffic, one of which failed recently."""
    for domain, sent in ((DOMAIN, 5), ("c.example", 9)):
        site_redis.run("SADD", keys.PARTNERS, domain)
        site_redis.run("HSET", keys.partner(domain), "sent", sent, "latency_ms", "2.5")
    now = site_redis.run("TIME")[0]
    site_redis.run("ZADD", keys.failures(DOMAIN), now, "x")
    site_redis.run("HSET", keys.partner(DOMAIN), "retry_at", now + 600, "failures", 3)
    return site_redis


def test_list_and_show(met: RedisServer) -> None:
    found = json.loads(run("list", "--json"))
    assert [(each["domain"], each["failures"]) for each in found] == [
        (DOMAIN, 1), ("c.example", 0),
    ]  # fmt: skip
    assert found[0]["in_a_row"] == 3 and found[0]["waiting"] == 0
    assert DOMAIN in run("list") and "c.example" not in run("list", "--limit", "1")
    assert json.loads(run("show", DOMAIN, "--json"))["sent"] == 5
    assert "latency_ms     2.5" in run("show", "c.example")
    with pytest.raises(CommandError, match="is not known"):
        run("show", "d.example")


def test_decisions(met: RedisServer) -> None:
    for verb, flags in (
        ("trust", "trusted"), ("pause", "trusted paused"), ("block", "trusted paused blocked"),
        ("untrust", "paused blocked"), ("resume", "blocked"), ("unblock", None),
    ):  # fmt: skip
        run(verb, DOMAIN)
        assert fields(met).get(f"relay:{DOMAIN}") == flags
    assert RelayNode.objects.get().flags == ()
    met.run("HSET", keys.partner(DOMAIN), "retry_at", 1, "failures", 3)
    assert "tried again" in run("reset", DOMAIN)
    assert met.run("EXISTS", keys.failures(DOMAIN)) == 0
    assert {entry.face for entry in AuditEntry.objects.all()} == {"cli"}
    assert AuditEntry.objects.count() == 7
    with pytest.raises(CommandError):
        run("pause", "no domain", "--unknown")


@pytest.mark.parametrize(
    "verb", ["pause", "resume", "block", "unblock", "trust", "untrust", "reset"]
)
def test_a_misspelt_relay_is_refused(met: RedisServer, verb: str) -> None:
    with pytest.raises(CommandError, match=r"relay b\.exmaple .*did you mean b\.example\?"):
        run(verb, "b.exmaple")
    assert not RelayNode.objects.filter(domain="b.exmaple") and not AuditEntry.objects.exists()


def test_a_decision_about_a_relay_before_its_first_message(met: RedisServer) -> None:
    with pytest.raises(CommandError, match="--unknown"):
        run("block", "d.test")
    assert "d.test is blocked" in run("block", "d.test", "--unknown")
    assert "d.test is not blocked any more" in run("unblock", "D.test.")  # added above


def test_decisions_for_programs(met: RedisServer) -> None:
    found = json.loads(run("pause", DOMAIN, "--json"))
    assert (found["domain"], found["flags"], found["in_a_row"]) == (DOMAIN, ["paused"], 3)
    assert json.loads(run("resume", DOMAIN, "--json"))["flags"] == []
    assert json.loads(run("reset", DOMAIN, "--json"))["failures"] == 0


def test_dead_letters(site_redis: RedisServer) -> None:
    first = add_dead(site_redis, message(uid="one", command="a.cmd"))
    second = add_dead(site_redis, message(uid="two\x1b[31m"), "expired")
    found = json.loads(run("letters", "--json"))
    assert [(each["name"], each["uid"][:3], each["why"]) for each in found] == [
        (second, "two", "expired"), (first, "one", "remote_4xx"),
    ]  # fmt: skip
    text = run("letters")
    assert "a.cmd" in text and "\\x1b[31m" in text and "\x1b" not in text
    assert [each["name"] for each in json.loads(run("letters", "--after", second, "--json"))] == [
        first
    ]
    text = run("letter", first)
    assert "404" in text and "12.5 ms" in text and "secret payload" not in text
    assert json.loads(run("letter", first, "--json"))["tries"][0]["relay"] == DOMAIN

    again = json.loads(run("requeue", first, "--json"))["outbox"]
    (waiting,) = json.loads(run("waiting", "--json"))
    assert (waiting["name"], waiting["uid"]) == (f"4/{again}", "one")
    assert "one" in run("letter", f"4/{again}") and "one" in run("waiting")
    assert run("waiting", "--after", f"4/{again}").count("\n") == 1
    assert run("delete", second) == f"{second} is deleted\n"
    assert json.loads(run("letters", "--json")) == []
    assert [entry.action for entry in AuditEntry.objects.order_by("number")] == [
        "letter.requeue", "letter.delete",
    ]  # fmt: skip
    for wrong in (
        ("requeue", first), ("delete", first), ("letter", first), ("letter", "x"),
        ("letter", "9/1-1"), ("letter", f"{'9' * 30}-1"), ("letters", "--limit", "0"),
        ("waiting", "--after", "1-1"),
    ):  # fmt: skip
        with pytest.raises(CommandError, match=r"gone already|message not found|is not|limit"):
            run(*wrong)


def test_all_dead_letters_of_a_relay(site_redis: RedisServer) -> None:
    for uid in ("one", "two"):
        add_dead(site_redis, message(uid=uid))
    assert json.loads(run("requeue-all", PARTNER, "--json")) == {"domain": PARTNER, "count": 2}
    assert [each["uid"] for each in json.loads(run("waiting", "--json"))] == ["one", "two"]
    with pytest.raises(CommandError, match="there is no dead letter for"):
        run("requeue-all", PARTNER)


@pytest.mark.usefixtures("no_redis")
def test_without_redis() -> None:
    for verb in ("list", "letters", "waiting"):
        with pytest.raises(CommandError, match="Redis does not answer"):
            run(verb)
    with pytest.raises(CommandError, match=r"Redis does not answer, .*--unknown"):
        run("block", "d.example")

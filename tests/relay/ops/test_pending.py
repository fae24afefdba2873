"""`relay.ops.pending`: decisions made while Redis is unavailable take effect when it is back."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.contrib.messages import get_messages
from django.core.management import CommandError, call_command
from django.test import Client

from relay.access.actor import SYSTEM
from relay.federation import services as federation
from relay.limits import defaults
from relay.limits import services as limits
from relay.ops import control, housekeeping, pending
from relay.ops.command import PENDING
from relay.ops.models import PendingDecision
from relay.queues import keys
from relay.twins import services as twins
from tests.relay.conftest import use_redis
from tests.relay.rest.conftest import bearer, token_of
from tests.support.redis_servers import RedisServer

pytestmark = pytest.mark.django_db(transaction=True)

NOWHERE = "redis://127.0.0.1:1"


def control_fields(server: RedisServer) -> dict[str, str]:
    return {
        name.decode(): value.decode() for name, value in server.run("HGETALL", keys.CONTROL).items()
    }


def test_what_was_decided_without_redis_comes_into_force(
    settings: Any, site_redis: RedisServer
) -> None:
    use_redis(settings, NOWHERE)
    limits.ban(7, "spam", actor=SYSTEM)
    defaults.put(5, 500, actor=SYSTEM)
    federation.block("bad.example", actor=SYSTEM)
    twins.announce([7])
    assert not pending.settle()
    assert pending.waiting() == ["limits", "relays", "twins"]
    use_redis(settings, site_redis.url)
    assert pending.settle()
    told = control_fields(site_redis)
    assert (told["ban:7"], told["limit"], told["relay:bad.example"]) == ("spam", "5 500", "blocked")
    assert site_redis.run("GET", keys.TWINS_VERSION) == b"1"
    assert not pending.settle() and not pending.waiting()


def test_a_decision_made_while_others_are_published_stays(
    settings: Any, site_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    pending.mark(pending.Kind.LIMITS)
    publish = limits.publish_all

    def slow() -> None:
        publish()
        pending.mark(pending.Kind.LIMITS)

    monkeypatch.setattr(limits, "publish_all", slow)
    pending.settle()
    assert PendingDecision.objects.get().marks == 2


def test_a_decision_that_comes_into_force_meanwhile_is_not_undone(
    site_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits.ban(7, "spam", actor=SYSTEM)
    pending.mark(pending.Kind.LIMITS)
    replace = control.replace

    def late(*arguments: Any) -> None:
        monkeypatch.setattr(control, "replace", replace)
        limits.lift_ban(7, actor=SYSTEM)
        limits.ban(8, "spam", actor=SYSTEM)
        replace(*arguments)

    monkeypatch.setattr(control, "replace", late)
    pending.settle()
    assert [name for name in control_fields(site_redis) if name.startswith("ban:")] == ["ban:8"]
    assert not pending.waiting()


def test_a_redis_that_lost_everything_is_told_again(site_redis: RedisServer) -> None:
    limits.ban(7, "spam", actor=SYSTEM)
    site_redis.run("FLUSHALL")
    housekeeping.run_due()
    pending.settle()
    assert control_fields(site_redis)["ban:7"] == "spam"


@pytest.mark.parametrize(
    "command",
    [
        ("rmb_ban", "set", "7", "--unknown"),
        ("rmb_ban", "set", "7", "--unknown", "--json"),
        ("rmb_limit", "set", "7", "5", "500", "--unknown"),
        ("rmb_limit", "default", "5", "500"),
        ("rmb_relays", "block", "bad.example", "--unknown"),
    ],
)
def test_a_command_says_that_its_decision_is_pending(
    no_redis: None, command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(CommandError, match=r"saved and pending.*127\.0\.0\.1:1\)") as ended:
        call_command(*command)
    assert ended.value.returncode == PENDING
    assert capsys.readouterr().out == "" or "--json" in command


def test_a_command_does_not_speak_of_an_earlier_outage(site_redis: RedisServer) -> None:
    pending.mark(pending.Kind.LIMITS)
    call_command("rmb_ban", "set", "7", "--unknown")
    assert not pending.waiting()


def test_twins_may_be_put_in_before_redis_runs(
    no_redis: None, capsys: pytest.CaptureFixture[str]
) -> None:
    call_command("rmb_twin", "add", "7", f"0x{'01' * 32}")
    told = capsys.readouterr()
    assert told.out == "twin 7 added\n" and "saved and pending" in told.err


def test_a_command_that_only_looks_ends_well(no_redis: None) -> None:
    pending.mark(pending.Kind.LIMITS)
    call_command("rmb_limit", "default")


def test_rest_and_console_say_that_a_decision_is_pending(no_redis: None) -> None:
    owner = User.objects.create_superuser("owner")
    answer = bearer(token_of(owner)).put(
        "/api/v1/limits/7",
        {"count": 5, "size": 500, "unknown": True},
        content_type="application/json",
    )
    assert answer.status_code == 200
    assert "saved and pending" in answer.headers["Warning"]
    console = Client()
    console.force_login(owner)
    form = {"twin": 8, "count": 5, "size": 500, "unknown": "on"}
    answer = console.post("/console/limits/set/", form)
    assert answer.status_code == 302
    assert any("saved and pending" in str(each) for each in get_messages(answer.wsgi_request))

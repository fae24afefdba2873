"""`relay.ops.printable`: no text from clients moves the cursor or breaks a line."""

from __future__ import annotations

import time
from io import StringIO

import pytest
from django.core.management import call_command
from django.utils import timezone

from relay.access.actor import SYSTEM, Actor, Face
from relay.alarms.models import Alarm, State
from relay.audit import services as audit
from relay.limits import services as limits
from relay.ops import screen, task_record
from relay.ops.load import Snapshot
from relay.ops.printable import shown
from relay.queues import keys
from relay.sessions.models import Session
from relay.twins.models import Twin
from tests.relay.federation import stored
from tests.support.redis_servers import RedisServer

WIPE = "\x1b[2J\n"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", ""),
        ("plain, ünïcode, 'quoted'", "plain, ünïcode, 'quoted'"),
        ("red\x1b[31m", "red\\x1b[31m"),
        ("two\nlines\r", "two\\nlines\\r"),
        ("right\u202eleft", "right\\u202eleft"),
        ("half\ud800", "half\\ud800"),
    ],
)
def test_what_is_not_to_be_printed_is_escaped(text: str, wanted: str) -> None:
    assert shown(text) == wanted
    assert wanted.isprintable()


def test_a_limit_holds_for_what_is_shown() -> None:
    assert shown("x" * 5, 5) == "xxxxx"
    assert shown("x" * 6, 5) == "xxxx…"
    assert shown("\x00" * 3, 9) == "\\x00\\x00…", "of the escaped text"


@pytest.mark.django_db(transaction=True)
def test_commands_print_it_escaped(site_redis: RedisServer) -> None:
    now = timezone.now()
    Twin.objects.create(id=7, account=bytes(32), relays=f"a{WIPE}b.example")
    limits.ban(7, f"noise{WIPE}", actor=SYSTEM)
    task_record.failed("one", "federation.deliver", [WIPE], ValueError(WIPE))
    audit.record(Actor(f"who{WIPE}", Face.REST, WIPE, None), "account.sign_in", target=WIPE)
    Alarm.objects.create(
        rule="partner_down", subject=f"b{WIPE}", severity="warning", state=State.FIRING,
        since=now, detail=WIPE,
    )  # fmt: skip
    remote = f"192.0.2.7{WIPE}"
    Session.objects.create(
        twin=7, epoch=5, worker="boot", opened_at=now, closed_at=now, remote=remote
    )
    Session.objects.create(twin=8, epoch=5, worker="boot", opened_at=now, remote=remote)
    site_redis.run("HSET", keys.SESSIONS, "8", f"5 boot {now.timestamp()} x")
    stored.add_partner(site_redis, last_error=f"503{WIPE}", failures=1)
    for arguments in (
        ("rmb_twin", "list"),
        ("rmb_ban", "list"),
        ("rmb_limit", "show", "7"),
        ("rmb_celery", "failed"),
        ("rmb_audit", "list"),
        ("rmb_alarms", "list"),
        ("rmb_sessions",),
        ("rmb_sessions", "--history"),
        ("rmb_relays", "show", stored.PARTNER),
    ):
        out, hints = StringIO(), StringIO()
        call_command(*arguments, stdout=out, stderr=hints)
        text = out.getvalue() + hints.getvalue()
        assert "\\x1b[2J\\n" in text and "\x1b" not in text, arguments


def test_the_screen_shows_it_escaped() -> None:
    nothing = Snapshot(0.0, (), {}, (), None, 0)
    text = "\n".join(screen.lines(nothing, nothing, f"here{WIPE}", time.time()))
    assert "here\\x1b[2J\\n" in text and "\x1b" not in text

"""`relay.ops.housekeeping` and `relay.ops.accounts`."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth import authenticate, get_user_model
from django.utils import timezone

from proto.sbd.frames import path_of_key
from relay.access.actor import SYSTEM
from relay.analytics.uids import sbd_session_uid, session_uid
from relay.limits import services as limits
from relay.limits.models import TwinLimit
from relay.ops import accounts, housekeeping
from relay.queues import keys
from relay.sessions.models import SBD, Session
from tests.relay.conftest import AddWorker
from tests.support.recorded import as_signed, rows
from tests.support.redis_servers import RedisServer

MINUTE = timedelta(minutes=1)
KEY = bytes(range(32))
"""Key of an SBD client."""

pytestmark = pytest.mark.django_db


def next_minute(server: RedisServer) -> None:
    server.run("DEL", "relay:housekeeping")


def session(worker: str, twin: int) -> None:
    Session.objects.create(twin=twin, epoch=1, worker=worker, opened_at=timezone.now())


def lost() -> set[int | None]:
    return set(Session.objects.filter(close_reason="worker_lost").values_list("twin", flat=True))


def test_one_process_does_it(site_redis: RedisServer) -> None:
    assert housekeeping.run_due()
    assert not housekeeping.run_due()
    next_minute(site_redis)
    assert housekeeping.run_due()


def test_a_worker_is_lost_when_it_was_missing_twice(
    site_redis: RedisServer, add_worker: AddWorker
) -> None:
    add_worker("alive")
    session("alive", 1)
    session("dead", 2)
    housekeeping.run_due()
    assert lost() == set(), "all workers may look dead for a second after an outage of Redis"
    next_minute(site_redis)
    housekeeping.run_due()
    assert lost() == {2}


def test_a_lost_session_ended_with_the_last_sign_of_life(
    site_redis: RedisServer, add_worker: AddWorker
) -> None:
    hour_ago = timezone.now().replace(microsecond=0) - timedelta(hours=1)
    for twin, opened_at in ((1, hour_ago - timedelta(minutes=5)), (2, hour_ago + MINUTE)):
        Session.objects.create(twin=twin, epoch=1, worker="dead", opened_at=opened_at)
    Session.objects.create(twin=3, epoch=1, worker="unseen", opened_at=hour_ago)
    Session.objects.create(
        twin=4, epoch=1, worker="unseen", opened_at=hour_ago, closed_at=hour_ago + 2 * MINUTE
    )
    add_worker("alive")
    for boot_id in ("alive", "dead", "forgotten"):
        site_redis.run("HSET", keys.WORKERS_SEEN, boot_id, f"{hour_ago.timestamp():.3f}")
    for _ in range(2):
        housekeeping.run_due()
        next_minute(site_redis)
    ended = dict(Session.objects.values_list("twin", "closed_at"))
    assert ended[1] == hour_ago
    assert ended[2] == hour_ago + MINUTE, "a session that began after the last heartbeat"
    assert ended[3] == hour_ago + 2 * MINUTE, "the newest its worker had written"
    assert site_redis.run("HKEYS", keys.WORKERS_SEEN) == [b"alive", b"dead"]
    housekeeping.run_due()
    assert site_redis.run("HKEYS", keys.WORKERS_SEEN) == [b"alive"]


@pytest.fixture
def recording(tmp_path: Path, settings: Any) -> Path:
    """Let the site record events; return the folder of the lake."""
    chosen = dataclasses.replace(settings.RMB.analytics, record=True, dir=str(tmp_path / "lake"))
    settings.RMB = dataclasses.replace(settings.RMB, analytics=chosen)
    return tmp_path / "lake"


def test_a_lost_session_has_a_closing_event(site_redis: RedisServer, recording: Path) -> None:
    opened_at = timezone.now().replace(microsecond=0) - timedelta(hours=1)
    Session.objects.create(
        twin=7, sid_present=True, sid="phone", epoch=5, worker="dead", opened_at=opened_at
    )
    Session.objects.create(twin=8, epoch=6, worker="dead", opened_at=opened_at + 2 * MINUTE)
    peer = {"protocol": SBD, "peer": path_of_key(KEY)}
    Session.objects.create(**peer, epoch=9, worker="dead", opened_at=opened_at)
    seen = opened_at + MINUTE
    site_redis.run("HSET", keys.WORKERS_SEEN, "dead", f"{seen.timestamp():.3f}")
    housekeeping.run_due()
    next_minute(site_redis)
    assert rows(recording) == []
    housekeeping.run_due()
    found = {row.source: row for row in rows(recording)}
    assert set(found) == {None, 7, 8} == lost()
    row = found[7]
    assert (row.kind, row.reason, row.session, row.destination) == (
        *("session_close", "worker_lost"),
        *("phone", 0),
    )
    assert row.uid == as_signed(session_uid("dead", (7, "phone"), 5))
    assert (row.at_us, row.latency_us) == (int(seen.timestamp() * 1e6), 60_000_000)
    assert found[8].latency_us == 0
    of_sbd = found[None]
    assert (of_sbd.kind, of_sbd.reason, of_sbd.source_key, of_sbd.latency_us) == (
        *("session_close", "worker_lost"),
        *(peer["peer"], 60_000_000),
    )
    assert of_sbd.uid == as_signed(sbd_session_uid("dead", KEY, 9))


def test_a_lost_session_waits_until_its_event_is_written(
    site_redis: RedisServer, recording: Path, caplog: pytest.LogCaptureFixture
) -> None:
    session("dead", 7)
    recording.write_text("in the place of the folder")
    for _ in range(2):
        housekeeping.run_due()
        next_minute(site_redis)
    assert lost() == set()
    assert "put off" in caplog.text
    recording.unlink()
    housekeeping.run_due()
    assert lost() == {7} == {row.source for row in rows(recording)}


def test_a_worker_that_came_back_is_not_lost(
    site_redis: RedisServer, add_worker: AddWorker
) -> None:
    session("slow", 1)
    housekeeping.run_due()
    add_worker("slow")
    for _ in range(2):
        next_minute(site_redis)
        housekeeping.run_due()
    assert lost() == set()


def test_expired_bans_are_lifted(site_redis: RedisServer) -> None:
    limits.ban(7, actor=SYSTEM)
    TwinLimit.objects.update(banned_until=timezone.now() - timedelta(seconds=1))
    housekeeping.run_due()
    assert not TwinLimit.objects.get(twin=7).banned


def test_without_redis_it_is_put_off(no_redis: None, caplog: pytest.LogCaptureFixture) -> None:
    assert not housekeeping.run_due()
    assert "put off" in caplog.text


def test_the_first_operator_is_made_once() -> None:
    made = accounts.make_first_operator()
    assert made is not None
    assert made.name == "operator"
    assert len(made.password) >= 20
    user = authenticate(username=made.name, password=made.password)
    assert user is not None and user.is_superuser  # type: ignore[attr-defined]
    assert accounts.make_first_operator() is None


def test_an_operator_who_may_not_sign_in_does_not_count() -> None:
    get_user_model().objects.create_user("operator", is_active=False)
    made = accounts.make_first_operator()
    assert made is not None
    assert made.name.startswith("operator-")

"""Alarms of a whole relay: workers die, and Celery, Redis or the database become unavailable.

Thresholds and hold times are low, so that tests need not wait for minutes. The failures of
processes, queues and connections are real, and the tests check what a webhook receives.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from relay.alarms import signing
from relay.queues import keys
from tests.relay.alarms import write_history
from tests.support.identities import twins_csv
from tests.support.partner import silence
from tests.support.postgres_server import PostgresServer
from tests.support.receivers import Hook, hook
from tests.support.redis_servers import free_port
from tests.support.relay_process import RelayProcess, run_command
from tests.support.rmb_client import session, signing_session
from tests.support.waiting import eventually
from tests.support.world import ELSEWHERE_TWIN, fresh_twins

SECRET = "a TEST SECRET of the receiver"
SOON_S = 60.0

OVERRIDES = (
    "INSERT INTO relay_alarms_ruleoverride (rule, threshold, clear, hold_s, enabled, updated)"
    " VALUES ({0}, {0}, NULL, 0, {1}, {0})"
)
RECEIVER = (
    "INSERT INTO relay_alarms_receiver (name, kind, target, secret, min_severity, enabled,"
    " failures, retry_at, last_error, busy_until, sequence)"
    " VALUES ({0}, 'webhook', {0}, {0}, 'warning', {1}, 0, 0, '', 0, 0)"
)
NOW = "2026-01-01 00:00:00+00:00"


@pytest.fixture
def receiver() -> Iterator[Hook]:
    with hook() as found:
        yield found


@pytest.fixture
def silent() -> Iterator[Hook]:
    """Start a receiver that never answers requests; other receivers must not be affected."""
    with hook() as found:
        found.behave(silence)
        yield found


def heard(receiver: Hook, kind: str = "alarm.fired") -> dict[str, dict[str, Any]]:
    """Return the alarms that a receiver was notified of, by rule."""
    return {
        each["alarm"]["rule"]: each["alarm"] for each in receiver.documents if each["type"] == kind
    }


async def hears(receiver: Hook, *rules: str, kind: str = "alarm.fired") -> None:
    """Wait until the receiver was notified of all these alarms."""

    def missing() -> set[str]:
        return set(rules) - set(heard(receiver, kind))

    await eventually(lambda: not missing(), SOON_S, f"{kind} of {rules}, heard {heard(receiver)}")


def check_requests(receiver: Hook) -> None:
    """Check that all requests are signed and in order, and that none is missing."""
    for each in receiver.requests:
        stamp = each.headers["rmb-alarm-timestamp"]
        signature = each.headers["rmb-alarm-signature"]
        assert signing.verify(SECRET, stamp, signature, each.body, time.time())
    numbered = [each["sequence"] for each in receiver.documents if each["sequence"]]
    assert sorted(set(numbered)) == list(range(1, max(numbered) + 1))
    assert numbered == sorted(numbered)


def prepare(relay: RelayProcess, urls: dict[str, str], thresholds: dict[str, float | None]) -> None:
    """Store rules and receivers, as an owner would have set them."""
    with sqlite3.connect(relay.database_path(), timeout=20) as database:
        for rule, threshold in thresholds.items():
            values = (rule, threshold, NOW)
            database.execute(OVERRIDES.format("?", "1"), values)
        for name, url in urls.items():
            database.execute(RECEIVER.format("?", "1"), (name, url, SECRET))
    database.close()


async def test_what_happens_to_workers_queues_and_partners(
    start_relay: Any, start_server: Any, receiver: Hook, silent: Hook
) -> None:
    nobody = f"127.0.0.1:{free_port()}"
    server = start_server(append_fsync="no")
    one, two, away = fresh_twins(3)
    for _ in range(95):  # messages left by another program; the first sweep finds them
        server.run("XADD", f"stream:{away.id}", "*", "_", b"left")
    relay = start_relay(
        server,
        wait=False,
        processes=2,
        settings={
            "celery.embedded": "1",
            "alarms.allow_private": "1",
            "federation.allow_private": "1",
            "federation.scheme": "http",
            "queue.max_messages": "100",
            "limits.count": "30",
            "limits.size": "1000000",
        },
    )
    prepare(
        relay,
        {"silent": silent.url, "hook": receiver.url},
        {
            "queue_near_full": None,
            "limit_storm": 5,
            "commit_latency": 0.001,
            "loop_lag": 0.001,
            "partner_down": 2,
            "outbox_age": 2,
            "worker_silent": 6,
            "disk": 0.0,
            "check_found": None,
            "receiver_failing": 5,
        },
    )
    with sqlite3.connect(relay.database_path(), timeout=20) as database:
        database.execute("UPDATE relay_twins_twin SET relays=? WHERE id=3001", (nobody,))
    database.close()
    relay.wait_ready()
    await hears(receiver, "queue_near_full", "disk", "loop_lag")
    queued = heard(receiver)["queue_near_full"]
    assert (queued["subject"], queued["value"]) == (str(away.id), 95.0)
    async with signing_session(relay.url, one) as sender, session(relay.url, two) as other:
        await sender.request((ELSEWHERE_TWIN.id, None), b"for a relay that is gone")
        for _ in range(25):
            await sender.request(other.key, b"counted")
            await other.receive()
        for _ in range(120):  # enough for one window, though a minute may end in between
            await sender.request(other.key, b"too much")
        assert server.run("DEL", keys.STARTING), "its start is over"
        await hears(receiver, "limit_storm", "partner_down", "outbox_age", "commit_latency")
        assert heard(receiver)["partner_down"]["subject"] == nobody
        # A message without a wake-up: only the periodic check can find it.
        server.run("XADD", f"stream:{two.id}", "*", "_", b"missed")
        await hears(receiver, "check_found")
        pids = list(relay.worker_pids().values())
        os.kill(pids[0], signal.SIGKILL)
        os.kill(pids[1], signal.SIGSTOP)
        try:
            await hears(receiver, "worker_silent", "worker_restarts")
        finally:
            os.kill(pids[1], signal.SIGCONT)
    await hears(receiver, "worker_silent", kind="alarm.resolved")
    await hears(receiver, "receiver_failing")
    assert heard(receiver)["receiver_failing"]["subject"] == "silent"
    check_requests(receiver)
    assert {each["sequence"] for each in silent.documents} == {1}
    assert "background_down" not in heard(receiver)


def test_who_reads_the_history_on_misses_nothing(postgres: PostgresServer, tmp_path: Path) -> None:
    """No event becomes visible before one with a smaller id, even if both are written at once."""
    settings = {
        "database.url": postgres.make_migrated_database("history"),
        "redis.url": "redis://127.0.0.1:1",
        "data.dir": str(tmp_path),
    }
    names = {f"RMB_{name.replace('.', '__').upper()}": value for name, value in settings.items()}
    environment = {**os.environ, **names, "DJANGO_SETTINGS_MODULE": "rmbsite.settings"}
    done = subprocess.run(
        [sys.executable, "-m", write_history.__name__],
        cwd=Path(__file__).parents[2],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    found = json.loads(done.stdout)
    written = {(rule, kind) for _, rule, kind in found["there"]}
    assert written == {("database_away", "fired"), ("redis_away", "fired")}
    assert found["seen"] == [number for number, _, _ in found["there"]]


async def test_when_celery_redis_and_the_database_are_away(
    start_relay: Any, start_server: Any, postgres: PostgresServer, tmp_path: Path, receiver: Hook
) -> None:
    """Without any Celery worker, the operator site itself detects and reports the failures."""
    database = postgres.make_migrated_database("alarms")
    settings = {"database.url": database, "redis.url": "redis://127.0.0.1:1"}
    one, two = fresh_twins(2)
    source = tmp_path / "twins.csv"
    source.write_text(twins_csv([one, two]))
    run_command(tmp_path, "rmb_twin", "import", str(source), settings=settings)
    with postgres.connect("alarms") as connection:
        for rule in ("background_down", "redis_away", "database_away", "redis_went_back"):
            connection.execute(OVERRIDES.format("%s", "true"), (rule, None, NOW))
        values = ("hook", receiver.url, SECRET)
        connection.execute(RECEIVER.format("%s", "true"), values)
    server = start_server()  # without persistence
    relay = start_relay(
        server,
        operator_site=True,
        settings={"database.url": database, "alarms.allow_private": "1"},
    )
    assert server.run("DEL", keys.STARTING), "its start is over"
    await hears(receiver, "background_down")
    async with session(relay.url, one) as sender, session(relay.url, two) as other:
        await sender.request(other.key, b"stored")
        await other.receive()

        server.stop()
        await hears(receiver, "redis_away")
        server.start()
        await hears(receiver, "redis_went_back")

    await hears(receiver, "redis_away", kind="alarm.resolved")
    postgres.stop()
    await hears(receiver, "database_away")
    assert relay.get("/ready", admin=True)[0] == 503
    postgres.start()
    await hears(receiver, "database_away", kind="alarm.resolved")
    with postgres.connect("alarms") as connection:
        kinds = connection.execute(
            "SELECT kind FROM relay_alarms_alarmevent WHERE rule='database_away' ORDER BY id"
        ).fetchall()
    assert kinds == [("fired",), ("resolved",)]
    check_requests(receiver)
    assert "Traceback" not in relay.log()

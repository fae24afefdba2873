"""`relay.ops.doctor`: set-ups that are broken in one way each, with real servers and files."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import OperationalError, connection
from django.utils import timezone

from relay.alarms.models import Alarm, Evaluation
from relay.analytics import places
from relay.federation import outbox
from relay.ops import background, doctor, redis_client
from relay.ops.doctor import Finding, Level, machine, recorded
from relay.queues import keys
from relay.twins.models import Twin
from tests.relay.conftest import AddWorker, use_redis
from tests.support.certificates import make_certificate
from tests.support.identities import twin
from tests.support.redis_servers import RedisServer, free_port, start_valkey
from tests.support.relay_process import ROOT, command_environment, run_command

pytestmark = pytest.mark.django_db


def configured(settings: Any, section: str, **values: Any) -> None:
    changed = dataclasses.replace(getattr(settings.RMB, section), **values)
    settings.RMB = dataclasses.replace(settings.RMB, **{section: changed})


def examine() -> dict[str, Finding]:
    """Return the findings that are not OK, by the name of their check."""
    return {each.check: each for each in doctor.examine() if each.level is not Level.OK}


@pytest.fixture
def sound(
    settings: Any, site_redis: RedisServer, add_worker: AddWorker, tmp_path: Path
) -> Iterator[RedisServer]:
    """Set up a running relay with an operator and a twin, in which the doctor finds no fault."""
    (tmp_path / "data").mkdir(mode=0o700)
    configured(settings, "data", dir=str(tmp_path / "data"))
    configured(
        settings,
        "relay",
        domains=("localhost",),
        workers=10,
        user_per_worker=100,
        backlog=128,
        max_token_lifetime_s=3600,
        listen=f"127.0.0.1:{free_port()}",
    )
    site_redis.run("CONFIG", "SET", "appendonly", "yes")
    add_worker("boot", {"sbd_keys": 1, "mux_connections": 0}, sessions=2)
    for queue in background.QUEUES:
        site_redis.run("SET", background._alive(queue), "1")
    call_command("createsuperuser", "--noinput", "--username", "one", "--email", "")
    Twin.objects.create(id=7, account=twin(7).account, relays="localhost")
    Evaluation.objects.create(pk=Evaluation.ONLY, done=time.time())
    yield site_redis
    site_redis.run("CONFIG", "SET", "appendonly", "no")  # other tests use the same server


@pytest.fixture
def other_server(tmp_path: Path, settings: Any, sound: RedisServer) -> Iterator[Any]:
    """Start a Valkey with options and let the site use it."""
    servers = []

    def start(*arguments: str) -> RedisServer:
        server = start_valkey(tmp_path / f"redis{len(servers)}", *arguments)
        servers.append(server)
        use_redis(settings, server.url)
        return server

    yield start
    for server in servers:
        server.remove()


def test_a_sound_relay(sound: RedisServer) -> None:
    assert examine() == {}


def test_one_of_each_is_told_as_one(sound: RedisServer, add_worker: AddWorker) -> None:
    add_worker("boot", sessions=1)
    texts = {each.check: each.text for each in doctor.examine()}
    assert texts["relay.workers"] == "1 session at 1 worker"
    assert texts["database.twins"] == "1 twin known"
    assert texts["federation.outbox"] == "0 messages waiting for partner relays"


def test_redis_away(settings: Any, sound: RedisServer) -> None:
    use_redis(settings, "redis://127.0.0.1:1")
    found = examine()
    assert found["redis.server"].level is Level.FAULT
    assert "127.0.0.1:1 does not answer" in found["redis.server"].text


def test_redis_that_hangs_is_waited_for_once(
    settings: Any, sound: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The doctor waits once for a server that accepts connections and never answers."""
    monkeypatch.setattr(redis_client, "COMMAND_TIMEOUT_S", 0.5)
    with socket.create_server(("127.0.0.1", 0), backlog=100) as server:
        use_redis(settings, f"redis://127.0.0.1:{server.getsockname()[1]}")
        found = examine()
        server.setblocking(False)
        connections = 0
        with contextlib.suppress(BlockingIOError):
            while True:
                server.accept()[0].close()
                connections += 1
    assert "does not answer" in found["redis.server"].text
    assert not any(name.startswith("doctor.") for name in found)
    assert connections == 1 + redis_client.RETRIES
    assert redis_client.client(), "given up by the doctor alone"


def test_redis_that_throws_queues_away(other_server: Any) -> None:
    other_server("--maxmemory-policy", "allkeys-lru", "--appendonly", "yes")
    found = examine()["redis.policy"]
    assert found.level is Level.FAULT and "allkeys-lru" in found.text
    assert "CONFIG SET maxmemory-policy noeviction" in found.remedy


def test_redis_that_forgets(other_server: Any) -> None:
    other_server("--appendonly", "no", "--save", "")
    assert "lost when Redis ends" in examine()["redis.persistence"].text


def test_redis_that_is_a_replica(other_server: Any, sound: RedisServer) -> None:
    other_server("--appendonly", "yes", "--replicaof", "127.0.0.1", str(sound.port))
    assert "refuses writes" in examine()["redis.role"].text


def test_redis_that_is_a_cluster(other_server: Any) -> None:
    other_server("--cluster-enabled", "yes", "--cluster-port", str(free_port()))
    assert "is a cluster" in examine()["redis.server"].text


def test_redis_that_is_nearly_full(other_server: Any) -> None:
    server = other_server("--appendonly", "yes")
    used = int(server.client().info("memory")["used_memory"])
    server.run("CONFIG", "SET", "maxmemory", used + 100_000)
    assert "of" in examine()["redis.memory"].text


def test_database_without_tables(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir(mode=0o700)
    (tmp_path / "data" / "relay.sqlite3").touch(mode=0o600)
    done = run_command(tmp_path, "rmb_doctor", settings={"redis.url": "redis://127.0.0.1:1"})
    assert done.returncode == 1 and "migrations are missing" in done.stdout
    assert "manage.py migrate" in done.stdout and "Traceback" not in done.stderr


def test_before_the_first_start(tmp_path: Path) -> None:
    run_command(tmp_path, "rmb_doctor", settings={"redis.url": "redis://127.0.0.1:1"})
    assert not list(tmp_path.rglob("*.sqlite3")), "looking makes nothing"


def test_database_away(sound: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise OperationalError("connection refused\nIs the server running?")

    monkeypatch.setattr(connection, "ensure_connection", refuse)
    assert examine()["database.server"].text.endswith("connection refused")


def test_nobody_can_sign_in(sound: RedisServer, django_user_model: Any) -> None:
    django_user_model.objects.all().delete()
    assert "createsuperuser" in examine()["database.operators"].remedy


def test_twins_that_anybody_can_sign_for(sound: RedisServer) -> None:
    Twin.objects.create(id=9, account=bytes(32))
    assert "accounts of twins 9:" in examine()["database.accounts"].text


def test_twins_that_no_message_reaches(settings: Any, sound: RedisServer) -> None:
    configured(settings, "relay", domains=("localhost", "ws:/own"))
    for number, relays in enumerate(("wss://a", "a..b_.", "wss://a_b.example", "ws:/own", ""), 8):
        Twin.objects.create(id=number, account=bytes(32), relays=relays)
    found = examine()
    assert (
        "2 twins list no usable relay, such as twin 8 with 'wss://a'" in found["twins.relays"].text
    )
    assert "1 twins of the registry list no relay" in found["twins.no_relay"].text


@pytest.mark.parametrize(
    ("host", "life", "check", "text"),
    [
        ("localhost", timedelta(days=-1), "tls.expiry", "expired on"),
        ("localhost", timedelta(days=3), "tls.expiry", "expires in"),
        ("elsewhere.example", timedelta(days=90), "tls.names", "not for localhost"),
    ],
)
def test_certificate(
    settings: Any,
    sound: RedisServer,
    tmp_path: Path,
    host: str,
    life: timedelta,
    check: str,
    text: str,
) -> None:
    certificate, key = make_certificate(tmp_path, host=host, life=life)
    configured(settings, "relay", tls_cert=str(certificate), tls_key=str(key))
    found = examine()
    assert text in found[check].text and list(found) == [check]


def test_key_of_another_certificate(settings: Any, sound: RedisServer, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    certificate, _ = make_certificate(tmp_path, life=timedelta(days=90))
    _, key = make_certificate(tmp_path / "other")
    configured(settings, "relay", tls_cert=str(certificate), tls_key=str(key))
    assert "is not the key of" in examine()["tls.key"].text


def test_certificate_that_is_none(settings: Any, sound: RedisServer, tmp_path: Path) -> None:
    (tmp_path / "cert.pem").write_text("nothing")
    (tmp_path / "key.pem").write_text("nothing")
    configured(
        settings, "relay", tls_cert=str(tmp_path / "cert.pem"), tls_key=str(tmp_path / "key.pem")
    )
    assert examine()["tls.files"].level is Level.FAULT


def test_authorities_that_are_none(settings: Any, sound: RedisServer, tmp_path: Path) -> None:
    configured(settings, "federation", ca_file=str(tmp_path / "missing.pem"))
    assert "cannot be used" in examine()["tls.authorities"].text


def test_port_of_another_program(settings: Any, sound: RedisServer) -> None:
    sound.run("FLUSHALL")
    with socket.create_server(("127.0.0.1", 0)) as other:
        configured(settings, "relay", listen=f"127.0.0.1:{other.getsockname()[1]}")
        found = examine()
    assert "not by a relay" in found["relay.listener"].text
    assert "does not run" in found["relay.workers"].text


def test_address_of_another_machine(settings: Any, sound: RedisServer) -> None:
    sound.run("FLUSHALL")
    configured(settings, "relay", listen="192.0.2.7:8080")
    assert "no such address" in examine()["relay.listener"].remedy


def test_name_nobody_finds(settings: Any, sound: RedisServer) -> None:
    configured(settings, "relay", domains=("relay.invalid",))
    assert "relay.invalid does not resolve" in examine()["relay.domains"].text


def test_tokens_that_live_for_ever(sound: RedisServer, settings: Any) -> None:
    configured(settings, "relay", max_token_lifetime_s=0)
    assert examine()["relay.tokens"].level is Level.WARNING


def test_no_name(settings: Any, sound: RedisServer) -> None:
    configured(settings, "relay", domains=())
    assert examine() == {}, "a relay that runs was given one at its start"
    sound.run("FLUSHALL")
    assert "--domain" in examine()["relay.domains"].text


def test_workers_that_are_not_well(sound: RedisServer, add_worker: AddWorker) -> None:
    add_worker("late", slot="1", heartbeat=time.time() - 12)
    add_worker("lagging", slot="2", loop_lag_ms=450.0)
    add_worker("stopped", slot="3", state="storage_full")
    add_worker("full", slot="4", sessions=1000)
    found = examine()
    assert "test/1" in found["relay.heartbeat"].text
    assert "450 ms late" in found["relay.lag"].text
    assert found["relay.state"].level is Level.FAULT
    assert "test/4 (pid 4711) is full" in found["relay.capacity"].text


def test_addresses_that_are_refused(settings: Any, sound: RedisServer) -> None:
    minute = int(time.time()) // 60
    sound.run("ZADD", keys.hits("address", minute), 9, "192.0.2.9")
    assert "relay.addresses" not in examine(), "twins over their limits are no matter of these"
    for address, count in (("192.0.2.1", 3), ("192.0.2.2", 2400)):
        sound.run("ZADD", keys.hits("handshake", minute), count, address)
    found = examine()["relay.addresses"]
    assert found.level is Level.WARNING
    assert "of 2 addresses" in found.text and "192.0.2.2 (2,400), 192.0.2.1 (3)" in found.text
    assert "relay.handshakes_per_ip_per_s" in found.remedy
    assert "substrate." not in found.remedy, "twins are of the registry"
    configured(settings, "twins", source="tfchain")
    assert "substrate.look_ups_per_ip_per_s" in examine()["relay.addresses"].remedy


def test_clocks_of_most_twins_that_are_wrong(sound: RedisServer, add_worker: AddWorker) -> None:
    def add(slot: str, off_s: float, wrong: int, seen: int) -> None:
        figures = {"off_seconds": off_s, "wrong": wrong, "seen": seen}
        metrics = {f"relay_twin_clocks_{name}": value for name, value in figures.items()}
        add_worker(slot, metrics, slot=slot)

    add("1", 500.0, 2, 10)
    assert "relay.clock" not in examine()
    add("2", -602.0, 20, 30)
    found = examine()["relay.clock"]
    assert found.level is Level.WARNING
    assert "22 of the last 40 twins" in found.text
    assert "602 s behind this machine's" in found.text


def test_no_celery(sound: RedisServer) -> None:
    sound.run("DEL", background._alive("federation"))
    found = examine()["celery.workers"]
    assert found.level is Level.FAULT and "federation" in found.text


def test_alarms(sound: RedisServer) -> None:
    now = timezone.now()
    alarm = Alarm.objects.create(
        rule="partner_down", subject="b.example", severity="warning", state="firing", since=now
    )
    found = examine()["alarms.firing"]
    assert found.text == "alarm partner_down of b.example fires"
    assert f"rmb_alarms show {alarm.pk}" in found.remedy
    Evaluation.objects.update(done=time.time() - 300)
    assert "not evaluated for 300 s" in examine()["alarms.evaluation"].text


def test_events_that_do_not_come_into_the_lake(
    settings: Any, sound: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    configured(settings, "analytics", record=True)
    monkeypatch.setattr(recorded, "LIBRARY", "nobody_has_this")
    waiting = places.configured().segments
    waiting.mkdir(parents=True)
    for name in ("a-0-1.seg", "a-0-2.seg", "a-0-3.seg.unreadable"):
        (waiting / name).touch()
    long_ago_s = time.time() - 400
    os.utime(waiting / "a-0-1.seg", (long_ago_s, long_ago_s))
    found = examine()
    assert "setup-analytics" in found["analytics.packages"].remedy
    assert found["analytics.backlog"].text.startswith("1 segment ")
    assert "a-0-3.seg.unreadable" in found["analytics.segments"].text
    configured(settings, "analytics", record=False)
    assert not [check for check in examine() if check.startswith("analytics.")]


def test_mail_for_a_relay_that_takes_none(sound: RedisServer) -> None:
    account = outbox.account_of(["b.example"])
    sound.run("XADD", keys.outbox(0), f"{int((time.time() - 900) * 1000)}-0",
              "_", b"x", "from", "7", "for", account)  # fmt: skip
    sound.run("XADD", keys.DEAD_LETTERS, "*", "_", b"x", "why", "expired")
    found = examine()
    assert "the oldest for 9" in found["federation.outbox"].text
    assert "1 message for partner relays failed" in found["federation.dead-letters"].text


def test_chain_nobody_follows(settings: Any, sound: RedisServer) -> None:
    configured(settings, "twins", source="tfchain")
    configured(settings, "substrate", urls=("ws://127.0.0.1:1",))
    found = examine()
    assert "nobody follows the chain" in found["chain.follower"].text
    assert "forge twins" in found["chain.scheme"].text


def test_disk_and_memory_that_run_out(sound: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The findings are of the real disk and memory; the test moves the thresholds."""
    monkeypatch.setattr(machine, "LOW_MEMORY_BYTES", 2**60)
    monkeypatch.setattr(machine, "LOW_DISK_BYTES", 2**60)
    found = examine()
    assert found["machine.disk"].level is Level.WARNING and "machine.memory" in found
    monkeypatch.setattr(machine, "FULL_DISK_BYTES", 2**60)
    assert examine()["machine.disk"].level is Level.FAULT


def test_data_folder_that_is_a_file(settings: Any, sound: RedisServer, tmp_path: Path) -> None:
    (tmp_path / "file").touch(mode=0o600)
    configured(settings, "data", dir=str(tmp_path / "file"))
    assert "cannot be written" in examine()["machine.data"].text


def test_a_backlog_the_kernel_cuts(settings: Any, sound: RedisServer) -> None:
    configured(settings, "relay", backlog=2**30)
    assert "net.core.somaxconn" in examine()["machine.backlog"].remedy


def test_a_check_that_breaks_does_not_take_the_others_away() -> None:
    def broken() -> Iterator[Finding]:
        raise RuntimeError("no such thing")
        yield

    found = list(doctor.examine([broken, machine.memory]))
    assert [each.check for each in found] == ["doctor.broken", "machine.memory"]


def test_too_few_open_files(tmp_path: Path) -> None:
    """A process with a lower limit of open files reports that as JSON."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "manage.py"), "rmb_doctor", "--json"],
        env=command_environment(tmp_path, {"redis.url": "redis://127.0.0.1:1"}),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (512, 512)),
        capture_output=True,
        text=True,
        timeout=60,
    )
    report = json.loads(done.stdout)
    assert done.returncode == 1 and report["faults"] >= 1
    texts = {each["check"]: each["text"] for each in report["findings"]}
    assert "may open 512 files: a worker holds 448 sessions" in texts["machine.open-files"]


def test_quiet(sound: RedisServer) -> None:
    stdout = StringIO()
    call_command("rmb_doctor", "--quiet", stdout=stdout)
    assert stdout.getvalue().splitlines()[0].startswith("0 faults, 0 warnings")

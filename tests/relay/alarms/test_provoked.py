"""Each alarm, provoked for real: a Valkey out of memory, an expiring certificate, ...

Failures of a whole relay (dying workers, an outage of Celery or the database) are tested in
`tests/e2e/test_alarms.py`. Hold times pass on the evaluation's own clock (`conftest.evaluate`).
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from relay.alarms.models import Alarm, AlarmEvent, Delivery, Evaluation
from relay.alarms.readings import take
from relay.federation.models import RelayNode
from relay.queues import keys
from tests.relay.alarms.conftest import ON_DISK, Evaluate, configure, override, states, webhook
from tests.relay.alarms.test_delivery import deliver
from tests.relay.conftest import AddWorker, use_redis
from tests.support.certificates import make_certificate
from tests.support.redis_servers import (
    RedisServer,
    can_save,
    cannot_save,
    free_port,
    start_valkey,
)
from tests.support.waiting import wait_until

pytestmark = pytest.mark.django_db

DAY = datetime.timedelta(days=1)


@pytest.fixture
def own_redis(tmp_path: Path, settings: Any) -> Iterator[RedisServer]:
    """Start a Valkey that a test may break."""
    server = start_valkey(tmp_path / "valkey")
    use_redis(settings, server.url)
    yield server
    server.remove()


def detail(rule: str, subject: str = "") -> str:
    return Alarm.objects.get(rule=rule, subject=subject).detail


def test_redis_ends_and_comes_back(own_redis: RedisServer, evaluate: Evaluate) -> None:
    evaluate(2)
    own_redis.stop()
    evaluate(2)
    assert states("redis_away") == {"": "pending"}
    evaluate(2)
    assert states("redis_away") == {"": "firing"}
    assert "refused" in detail("redis_away")
    own_redis.start()
    evaluate(4)
    assert states("redis_away") == {}


def test_redis_runs_out_of_memory(own_redis: RedisServer, evaluate: Evaluate) -> None:
    used = int(own_redis.run("INFO", "memory")["used_memory"])
    own_redis.run("CONFIG", "SET", "maxmemory", used + (32 << 20))
    evaluate(8)
    assert states("redis_memory") == {}
    for number in range(28):
        own_redis.run("SET", f"much {number}", b"x" * (1 << 20))
    evaluate(8)
    assert states("redis_memory") == {"": "firing"}
    assert detail("redis_memory").endswith("maxmemory")
    own_redis.run("FLUSHALL")
    evaluate(15)
    assert states("redis_memory") == {}


def test_redis_cannot_write_to_its_disk(own_redis: RedisServer, evaluate: Evaluate) -> None:
    """A Redis that answers, but refuses writes (heartbeats included), fires just that alarm."""
    stopped = {"slot": "0", "host": "test", "heartbeat": time.time() - 20, "started": 1.0}
    own_redis.run("HSET", keys.worker("one"), *[part for pair in stopped.items() for part in pair])
    own_redis.run("SADD", keys.WORKERS, "one")
    cannot_save(own_redis)
    evaluate(8)
    assert states("redis_persistence") == {"": "firing"}
    assert "the last snapshot; it refuses all writes: MISCONF" in detail("redis_persistence")
    assert states("redis_away") == states("background_down") == states("worker_silent") == {}
    can_save(own_redis)
    evaluate(8)
    assert len(states("background_down")) == 3 and len(states("worker_silent")) == 1


def test_a_worker_whose_messages_redis_refuses_counts(
    site_redis: RedisServer, add_worker: AddWorker, evaluate: Evaluate
) -> None:
    add_worker("a", state="storage_full")
    evaluate(8)
    assert "Redis refuses to store" in detail("redis_memory")


def test_redis_may_throw_queues_away(own_redis: RedisServer, evaluate: Evaluate) -> None:
    own_redis.run("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    evaluate(2)
    assert states("redis_policy") == {"": "firing"}
    assert detail("redis_policy") == "maxmemory-policy is allkeys-lru"
    own_redis.run("CONFIG", "SET", "maxmemory-policy", "noeviction")
    evaluate(4)
    assert states("redis_policy") == {}


def test_redis_cannot_save(own_redis: RedisServer, evaluate: Evaluate) -> None:
    def saved(status: str) -> bool:
        facts = own_redis.run("INFO", "persistence")
        return not facts["rdb_bgsave_in_progress"] and facts["rdb_last_bgsave_status"] == status

    in_the_way = own_redis.folder / "dump.rdb"
    in_the_way.mkdir()
    own_redis.run("BGSAVE")
    wait_until(lambda: saved("err"))
    evaluate(8)
    assert states("redis_persistence") == {"": "firing"}
    assert detail("redis_persistence") == "failed: the last snapshot"
    in_the_way.rmdir()
    own_redis.run("BGSAVE")
    wait_until(lambda: saved("ok"))
    evaluate(15)
    assert states("redis_persistence") == {}


def test_sbd_clients_that_fail(
    site_redis: RedisServer,
    add_worker: AddWorker,
    evaluate: Evaluate,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wrong, missing = "sbd_ended_bad_signature_total", "sbd_auth_failures_no_token_total"
    slow = "sbd_ended_slow_reader_total"
    add_worker("off", slot="1")
    add_worker("a", {"sbd_connections": 3, wrong: 1000, slow: 1000})
    evaluate(8)
    assert states("sbd_auth_failures") == states("sbd_slow_readers") == {}, "long ago"
    add_worker("a", {"sbd_connections": 3, wrong: 1060, missing: 50, slow: 1021})
    evaluate(8)
    assert states("sbd_auth_failures") == states("sbd_slow_readers") == {"": "firing"}
    assert detail("sbd_auth_failures") == "110 within a minute: bad_signature 60, no_token 50"
    assert detail("sbd_slow_readers") == "21 clients dropped within a minute"
    monkeypatch.setattr(take, "clock", lambda: time.time() + 61)
    evaluate(30)
    assert states("sbd_auth_failures") == states("sbd_slow_readers") == {}


def test_the_disk_fills(
    site_redis: RedisServer, evaluate: Evaluate, settings: Any, tmp_path: Path
) -> None:
    """The alarm fires on the real disk, as the test lowers the threshold below its usage."""
    configure(settings, "data", dir=str(ON_DISK))
    override("disk", threshold=0.01)
    evaluate(8)
    assert states("disk") == {str(ON_DISK): "firing"}
    assert detail("disk", str(ON_DISK)).endswith("bytes free")
    configure(settings, "data", dir=str(tmp_path / "gone"))
    evaluate(14)
    assert states("reading_unknown")["disk"] == "firing"
    assert states("disk") == {str(ON_DISK): "firing"}  # nothing newer is known


def test_the_certificate_runs_out(
    site_redis: RedisServer, evaluate: Evaluate, settings: Any, tmp_path: Path
) -> None:
    path, _ = make_certificate(tmp_path, life=20 * DAY)
    configure(settings, "relay", tls_cert=str(path))
    evaluate()
    assert states("certificate_expiry") == {str(path): "firing"}
    assert states("certificate_expired") == {}
    make_certificate(tmp_path)
    evaluate()
    assert states("certificate_expired") == {str(path): "firing"}
    make_certificate(tmp_path, life=-DAY)  # it has expired
    evaluate()
    assert Alarm.objects.get(rule="certificate_expired").value == pytest.approx(-1, abs=0.01)
    make_certificate(tmp_path, life=90 * DAY)
    evaluate()
    assert states("certificate_expired") == {} and states("certificate_expiry") == {}
    path.write_text("not a certificate")
    evaluate()
    assert "certificate" in Evaluation.objects.get().unknown


def test_the_clock_is_set(
    site_redis: RedisServer, evaluate: Evaluate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clock that is set fires an alarm; it is simulated, as other programs need the real one."""
    evaluate(2)
    assert states("clock_step") == {}
    real = time.time
    monkeypatch.setattr(take, "clock", lambda: real() + 90)
    evaluate()
    assert states("clock_step") == {"this machine": "firing", "Redis": "firing"}
    assert detail("clock_step", "this machine") == "set by +90.0 s within 5 minutes"
    assert detail("clock_step", "Redis") == "Redis' clock is -90.0 s from ours"
    monkeypatch.setattr(take, "clock", real)
    evaluate(15)
    assert states("clock_step") == {"this machine": "firing"}  # setting it back is a step as well


def test_mail_for_other_relays_waits(site_redis: RedisServer, evaluate: Evaluate) -> None:
    stored = int((time.time() - 400) * 1000)
    fields = ("_", b"envelope", "from", "7", "for", "away.example")
    site_redis.run("XADD", keys.outbox(3), f"{stored}-0", *fields)
    evaluate(14)
    assert states("outbox_age") == {"": "firing"}
    assert detail("outbox_age").startswith("1 messages wait; oldest: away.example 6 min")
    site_redis.run("DEL", keys.outbox(3))
    evaluate(15)
    assert states("outbox_age") == {}


def test_another_relay_is_down(site_redis: RedisServer, evaluate: Evaluate) -> None:
    """The state that drainers leave in Redis fires the alarm; the e2e test has a real drainer."""

    def failed(domain: str, times: int) -> None:
        now = time.time()
        fields = ("failures", times, "last_failure", now, "last_error", "no answer in time")
        site_redis.run("SADD", keys.PARTNERS, domain)
        site_redis.run("HSET", keys.partner(domain), *fields)

    failed("down.example", 9)
    failed("slow.example", 2)
    failed("paused.example", 50)
    RelayNode.objects.create(domain="paused.example", paused=True)
    evaluate(8)
    assert states("partner_down") == {"down.example": "firing"}
    assert detail("partner_down", "down.example").startswith("no answer in time; last success")
    site_redis.run("HDEL", keys.partner("down.example"), "failures")
    evaluate(15)
    assert states("partner_down") == {}


def test_twins_are_behind_the_chain(
    site_redis: RedisServer, evaluate: Evaluate, settings: Any
) -> None:
    evaluate(2)
    assert states("chain_lag") == {}  # twins come from the registry
    configure(settings, "twins", source="tfchain")
    evaluate(14)
    assert states("chain_lag") == {"": "firing"}
    assert detail("chain_lag") == "nobody follows the chain"
    now = time.time()
    site_redis.run("SET", keys.CHAIN_LEASE, "somebody")
    followed = ("url", "ws://node", "height", 100, "hash", "ab" * 32, "head_at", now)
    site_redis.run("HSET", keys.CHAIN, *followed, "head_height", 130)
    evaluate(15)
    assert states("chain_lag") == {"": "firing"}
    assert detail("chain_lag") == "30 blocks behind"
    site_redis.run("HSET", keys.CHAIN, "height", 129)
    evaluate(15)
    assert states("chain_lag") == {}


def test_alarms_do_not_arrive(site_redis: RedisServer, evaluate: Evaluate, settings: Any) -> None:
    configure(settings, "alarms", allow_private=True)
    webhook(f"http://127.0.0.1:{free_port()}/")
    override("receiver_failing", threshold=0.001)
    for _ in range(10):  # until a notice exists: that no process does background work
        evaluate()
        if Delivery.objects.exists():
            break
    assert deliver() == 0
    evaluate()
    assert states("receiver_failing") == {"hook": "firing"}
    assert "Connection refused" in detail("receiver_failing", "hook")
    for _ in range(15):
        Delivery.objects.all().delete()
        evaluate()
    assert states("receiver_failing") == {}


def test_a_worker_dies_and_has_a_successor(
    site_redis: RedisServer, add_worker: AddWorker, evaluate: Evaluate
) -> None:
    """The heartbeats of a replaced worker fire an alarm; the e2e test kills a real one."""
    add_worker("old", slot="0")
    add_worker("other", slot="1")
    evaluate(2)
    now = time.time()
    add_worker("old", slot="0", heartbeat=now - 4)
    add_worker("new", slot="0", started=now)
    evaluate()
    assert states("worker_restarts") == {"test/0": "firing"}
    assert states("worker_silent") == {}
    assert Alarm.objects.get(rule="worker_restarts").value == 1
    evaluate(3)
    assert AlarmEvent.objects.filter(rule="worker_restarts").count() == 1


def test_redis_restarts_and_nothing_is_missing(
    site_redis: RedisServer, add_worker: AddWorker, evaluate: Evaluate
) -> None:
    """A restart that lost nothing fires one alarm, by figures such as workers report.

    `tests/model/test_redis_restarts.py` tests that workers count them.
    """
    webhook("http://127.0.0.1:1/")
    restarted, lost = "relay_redis_restarts_total", "relay_redis_went_back_total"
    for slot in "01":
        add_worker(slot, {restarted: 0, lost: 0}, slot=slot)
    evaluate(2)
    for slot in "01":
        add_worker(slot, {restarted: 1, lost: 0}, slot=slot)
    evaluate(2)
    assert states("redis_restarted") == {"": "firing"} and states("redis_went_back") == {}
    assert detail("redis_restarted") == (
        "within 15 minutes; 2 workers compared their last confirmed batch with what Redis holds: "
        "nothing is missing"
    )
    told = {each.body["alarm"]["rule"] for each in Delivery.objects.all()}
    assert "redis_restarted" not in told, "receivers hear from warnings on"
    add_worker("0", {restarted: 2, lost: 1}, slot="0")
    evaluate(2)
    assert states("redis_went_back") == {"": "firing"}
    assert detail("redis_restarted").endswith("it was missing for 1")


def test_a_worker_that_stops_in_order_is_not_missed(
    site_redis: RedisServer, add_worker: AddWorker, evaluate: Evaluate
) -> None:
    add_worker("old", slot="0")
    evaluate()
    site_redis.run("DEL", keys.worker("old"))
    site_redis.run("SREM", keys.WORKERS, "old")
    evaluate(10)
    assert states("worker_silent") == {} and states("worker_restarts") == {}


def test_a_worker_falls_silent_and_is_missed_when_its_heartbeat_is_gone(
    site_redis: RedisServer, add_worker: AddWorker, evaluate: Evaluate
) -> None:
    add_worker("a", slot="0", heartbeat=time.time() - 12)
    evaluate(2)
    assert states("worker_silent") == {"test/0": "firing"}
    site_redis.run("DEL", keys.worker("a"))
    site_redis.run("SREM", keys.WORKERS, "a")
    evaluate(10)
    assert states("worker_silent") == {"test/0": "firing"}
    assert detail("worker_silent", "test/0") == "it is gone, and no other has taken its place"
    add_worker("b", slot="0", started=time.time())
    evaluate(4)
    assert states("worker_silent") == {}

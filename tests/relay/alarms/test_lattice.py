"""Alarms about the lattice: findings, unchecked messages, and missing processes."""

from __future__ import annotations

import time
from typing import Any

import pytest

from proto.lattice.state import Total
from relay.alarms.bounds import MAX_DETAIL_CHARS
from relay.alarms.models import Alarm, Delivery, Evaluation
from relay.alarms.readings import take
from relay.queues import keys
from tests.relay.alarms.conftest import Evaluate, configure, override, webhook
from tests.relay.alarms.conftest import states as all_states
from tests.support.lattice_state import count, ended, find, report
from tests.support.redis_servers import RedisServer

pytestmark = pytest.mark.django_db

ACTOR = "wasmbus://MASUHOJP6EEVKEKHNLOIG2O3NXOJGNTFUEMXRXNBIBHOCBTMVFKZ3BLC"
TARGET = "wasmbus://rmb/twin/default/VALUKU5UK3O57RUQR3FLDQIB7ZVLEHRLVIDBO6K3PVB2MNECTE75KIIV"


@pytest.fixture
def lattice(site_redis: RedisServer, settings: Any) -> RedisServer:
    """Return the Redis of a relay whose bridge and monitor run."""
    configure(settings, "lattice", enabled=True, monitor=True)
    report(site_redis, "bridge")
    report(site_redis, "monitor")
    return site_redis


def states() -> dict[str, str]:
    """Return the states of unresolved alarms about the lattice by rule and subject."""
    return {name: state for name, state in all_states().items() if name.startswith("lattice_")}


def detail(rule: str, subject: str = "") -> str:
    return Alarm.objects.get(rule=rule, subject=subject).detail


def forged(server: RedisServer, reason: str, **more: Any) -> None:
    given = {"origin": ACTOR, "target": TARGET, "operation": "Twin.Call", "host_id": "NHOST",
             "text": "the token was seen before"}  # fmt: skip
    find(server, reason, **{**given, **more})


def test_all_is_well(lattice: RedisServer, evaluate: Evaluate) -> None:
    evaluate(8)
    assert states() == {}


def test_one_replay_is_enough(
    lattice: RedisServer, evaluate: Evaluate, monkeypatch: pytest.MonkeyPatch
) -> None:
    webhook("http://127.0.0.1:1/")
    forged(lattice, "replay", text="found before the first look")
    evaluate()
    assert states() == {}
    forged(lattice, "replay")
    forged(lattice, "replay", origin="wasmbus://MB", text="x" * 120, host_id="N" * 56)
    evaluate()
    assert states() == {"lattice_forged replay": "firing"}
    told = detail("lattice_forged", "replay")
    assert told.startswith(f"2 within 10 min; claimed origin: {ACTOR} (2), wasmbus://MB (1); last:")
    assert "x" * 120 in told and "Twin.Call of wasmbus://rmb/twin/" in told
    assert len(told) < MAX_DETAIL_CHARS, "the host is cut"
    (delivery,) = Delivery.objects.all()
    assert delivery.body["alarm"]["detail"] == told
    later = time.time() + 601
    monkeypatch.setattr(take, "clock", lambda: later)
    evaluate(65)
    assert states() == {}


def test_each_reason_has_an_alarm_of_its_own(lattice: RedisServer, evaluate: Evaluate) -> None:
    evaluate()
    forged(lattice, "signature")
    find(lattice, "undecodable", count=70_000)
    evaluate()
    assert states() == {
        "lattice_forged signature": "firing",
        "lattice_forged undecodable": "firing",
    }
    assert detail("lattice_forged", "undecodable") == "70,000 within 10 min"


def test_what_has_just_started_is_unknown_for_a_moment(
    lattice: RedisServer, evaluate: Evaluate, monkeypatch: pytest.MonkeyPatch
) -> None:
    override("lattice_unknown", hold_s=30)
    evaluate()
    forged(lattice, "host_unknown")
    evaluate(5)
    assert states() == {"lattice_unknown host_unknown": "pending"}
    later = float(round(time.time()) + 61)
    monkeypatch.setattr(take, "clock", lambda: later)
    evaluate()
    assert states() == {}
    forged(lattice, "host_unknown", at=later)
    evaluate(8)
    assert states() == {"lattice_unknown host_unknown": "firing"}


def test_calls_without_a_check(lattice: RedisServer, evaluate: Evaluate) -> None:
    count(lattice, Total.UNJUDGED, by=10)
    evaluate()
    count(lattice, Total.UNJUDGED, by=1_500)
    evaluate()
    assert states() == {"lattice_unlooked": "firing"}
    assert detail("lattice_unlooked") == "1,500 invocations within a minute were not checked"


def test_processes_that_end(lattice: RedisServer, evaluate: Evaluate, settings: Any) -> None:
    for kind in ("bridge", "monitor"):
        ended(lattice, f"{kind}-1")
    lattice.run("SET", keys.STARTING, "here", "EX", 60)
    evaluate(10)
    assert "firing" not in states().values(), "the relay has just started"
    lattice.run("DEL", keys.STARTING)
    evaluate(8)
    assert states() == {"lattice_missing bridge": "firing", "lattice_missing monitor": "firing"}
    assert detail("lattice_missing", "monitor") == "no monitor reports"
    report(lattice, "bridge")
    configure(settings, "lattice", monitor=False)
    evaluate(4)
    assert states() == {}


def test_nats_is_lost(lattice: RedisServer, evaluate: Evaluate) -> None:
    report(lattice, "bridge", "2", nats="away", error="nats: authorization violation")
    evaluate(5)
    assert states() == {"lattice_nats_lost bridge": "firing"}
    told = "1 of 2 without NATS: nats: authorization violation"
    assert detail("lattice_nats_lost", "bridge") == told
    report(lattice, "bridge", "2")
    evaluate(8)
    assert states() == {}


def test_a_relay_without_a_lattice(site_redis: RedisServer, evaluate: Evaluate) -> None:
    count(site_redis, Total.FOUND, "replay")
    evaluate(2)
    readings = Evaluation.objects.get().readings
    assert not any(readings[name] for name in readings if name.startswith("lattice_"))

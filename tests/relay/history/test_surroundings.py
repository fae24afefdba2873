"""The contents of frames other than the values."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from relay.alarms.models import Alarm, State
from relay.federation.live import PartnerState
from relay.federation.models import RelayNode
from relay.history.frames import Surroundings, encode
from relay.history.series import SERIES
from relay.history.surroundings import MAX_PARTNERS, Watch, strip
from relay.queues import keys
from tests.support.redis_servers import RedisServer

NOW = 1_800_000_000.0


def test_other_relays_in_trouble_first() -> None:
    partners = [
        PartnerState("busy", last_success=1, sent=900),
        PartnerState("quiet", heard=5, received=2),
        PartnerState("away", retry_at=NOW + 5, in_a_row=3),
        PartnerState("shaky", in_a_row=1, last_success=3),
        PartnerState("new"),
        PartnerState("paused", retry_at=NOW + 5),
    ]
    assert strip(partners, {"paused"}, NOW) == [
        ("away", "backed_off"), ("shaky", "failing"), ("paused", "stopped"),
        ("busy", "ok"), ("quiet", "ok"), ("new", "unknown"),
    ]  # fmt: skip
    many = [PartnerState(f"r{number}") for number in range(50)]
    assert len(strip(many, (), NOW)) == MAX_PARTNERS


@pytest.mark.django_db
def test_a_look(site_redis: RedisServer) -> None:
    watch = Watch()
    at = datetime.fromtimestamp(NOW, UTC)
    for rule, severity, state in (
        ("a", "warning", State.FIRING),
        ("b", "critical", State.ACKNOWLEDGED),
        ("c", "warning", State.RESOLVED),
        ("d", "info", State.FIRING),
    ):
        Alarm.objects.create(rule=rule, severity=severity, state=state, since=at)
    site_redis.run("SADD", keys.PARTNERS, "b.example")
    RelayNode.objects.create(domain="b.example", blocked=True)
    found = watch.look()
    assert (found.firing, found.worst) == (1, "warning")
    assert found.partners == [("b.example", "stopped")]
    Alarm.objects.update(state=State.FIRING)
    assert (watch.look().firing, watch.look().worst) == (3, "critical")


def test_a_frame() -> None:
    text = encode(7, {"sessions": 3.0}, Surroundings(2, "critical", [("b", "ok")]))
    frame = json.loads(text)
    values = frame.pop("values")
    assert set(values) == {each.key for each in SERIES}
    assert values.pop("sessions") == 3.0 and set(values.values()) == {None}
    assert frame == {
        "at": 7,
        "alarms": {"firing": 2, "worst": "critical"},
        "partners": [["b", "ok"]],
    }

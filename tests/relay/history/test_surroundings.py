"""What frames tell besides the values."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from relay.alarms.models import Alarm, State
from relay.federation.live import PartnerState
from relay.federation.models import RelayNode
from relay.history import busiest
from relay.history.busiest import Busiest
from relay.history.frames import Surroundings, encode
from relay.history.series import SERIES
from relay.history.surroundings import MAX_PARTNERS, TWINS_S, Watch, strip
from relay.queues import keys
from relay.sessions.models import Session
from tests.support.redis_servers import RedisServer

NOW = 1_800_000_000.0


def test_the_busiest_twins() -> None:
    ranking = Busiest()
    assert ranking.rank({1: (7, 100), 2: (8, 0)}, 10.0, 2) == []
    found = ranking.rank({1: (7, 100), 2: (8, 30), 3: (8, 10), 4: (9, 600)}, 20.0, 2)
    assert found == [(9, 60.0), (8, 4.0)]
    # Rows are written each 15 s: over two looks, one of which saw nothing new.
    found = ranking.rank({1: (7, 100), 2: (8, 30), 3: (8, 10), 4: (9, 600)}, 30.0, 5)
    assert found == [(9, 30.0), (8, 2.0)]
    # A session that ended is out of it.
    assert ranking.rank({1: (7, 300)}, 40.0, 5) == [(7, 10.0)]


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
    clock = [0.0]
    watch = Watch(lambda: clock[0])
    at = datetime.fromtimestamp(NOW, UTC)
    for rule, severity, state in (
        ("a", "warning", State.FIRING),
        ("b", "critical", State.ACKNOWLEDGED),
        ("c", "warning", State.RESOLVED),
        ("d", "info", State.FIRING),
    ):
        Alarm.objects.create(rule=rule, severity=severity, state=state, since=at)
    row = Session.objects.create(twin=7, epoch=1, worker="w", opened_at=at)
    Session.objects.create(twin=8, epoch=1, worker="w", opened_at=at, closed_at=at, messages_in=9)
    site_redis.run("SADD", keys.PARTNERS, "b.example")
    RelayNode.objects.create(domain="b.example", blocked=True)
    found = watch.look()
    assert (found.firing, found.worst) == (1, "warning")
    assert found.partners == [("b.example", "stopped")]
    assert found.top == []
    row.messages_out = 30
    row.save()
    clock[0] += TWINS_S
    assert watch.look().top == [(7, 2.0)]
    Alarm.objects.update(state=State.FIRING)
    assert (watch.look().firing, watch.look().worst) == (3, "critical")


@pytest.mark.django_db
def test_a_look_at_the_sessions_is_one_query(django_assert_num_queries: object) -> None:
    with django_assert_num_queries(1):  # type: ignore[operator]
        assert busiest.look() == {}


def test_a_frame() -> None:
    text = encode(7, {"sessions": 3.0}, Surroundings(2, "critical", [(9, 1.5)], [("b", "ok")]))
    frame = json.loads(text)
    values = frame.pop("values")
    assert set(values) == {each.key for each in SERIES}
    assert values.pop("sessions") == 3.0 and set(values.values()) == {None}
    assert frame == {
        "at": 7,
        "alarms": {"firing": 2, "worst": "critical"},
        "top": [[9, 1.5]],
        "partners": [["b", "ok"]],
    }

"""Successive evaluations: states, history, notified receivers, and readings that fail."""

from __future__ import annotations

import json
import time
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models import F
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from relay.alarms import evaluation, figures, standby
from relay.alarms.models import Alarm, AlarmEvent, Delivery, Evaluation, Kind, Silence
from relay.ops import starting
from relay.ops.redis_client import client
from relay.queues import keys
from tests.relay.alarms.conftest import ON_DISK, Evaluate, configure, override, states, webhook
from tests.relay.conftest import AddWorker, use_redis
from tests.support.redis_servers import RedisServer

pytestmark = pytest.mark.django_db

NOBODY = {"background_down federation", "background_down chain", "background_down default"}


def history() -> list[tuple[str, str]]:
    """Return kinds and rules of events in order, without those an empty Redis always causes."""
    events = AlarmEvent.objects.exclude(rule__in=("background_down", "reading_unknown"))
    return [(each.kind, each.rule) for each in events.order_by("pk")]


def told() -> list[tuple[str, str]]:
    """Return the types and rules of the notices for receivers, in order."""
    documents = Delivery.objects.order_by("pk").values_list("body", flat=True)
    return [
        (document["type"], document["alarm"]["rule"])
        for document in documents
        if document["alarm"]["rule"] not in ("background_down", "reading_unknown")
    ]


def test_an_alarm_from_its_beginning_to_its_end(
    evaluate: Evaluate, site_redis: RedisServer, settings: Any
) -> None:
    configure(settings, "data", dir=str(ON_DISK))
    webhook("http://127.0.0.1:1/")
    override("disk", threshold=0.1)
    evaluate()
    assert list(states("disk").values()) == ["pending"]
    assert not AlarmEvent.objects.filter(rule="disk").exists()
    evaluate(6)
    alarm = Alarm.objects.get(rule="disk")
    assert alarm.state == "firing" and alarm.active and alarm.value and "bytes" in alarm.detail
    body = Delivery.objects.get(body__alarm__rule="disk").body
    assert body["type"] == "alarm.fired" and body["alarm"]["threshold"] == 0.1
    assert body["alarm"]["runbook"].startswith("The database, and an embedded")
    override("disk", threshold=101)
    evaluate(20)
    assert states("disk") == {}
    assert history() == [("fired", "disk"), ("resolved", "disk")]
    assert told() == [("alarm.fired", "disk"), ("alarm.resolved", "disk")]
    sequences = [each.body["sequence"] for each in Delivery.objects.order_by("pk")]
    assert sequences == list(range(1, len(sequences) + 1))


def test_a_silence_and_an_acknowledgement_show(evaluate: Evaluate, site_redis: RedisServer) -> None:
    webhook("http://127.0.0.1:1/")
    Silence.objects.create(rule="back*", until=timezone.now() + timedelta(hours=1))
    evaluate(5)
    assert set(states("background_down").values()) == {"silenced"}
    assert not Delivery.objects.exists()
    Silence.objects.all().delete()
    Alarm.objects.filter(subject="chain").update(acknowledged_at=timezone.now())
    evaluate()
    kinds = Delivery.objects.filter(body__alarm__subject="chain").order_by("pk")
    assert [each.body["type"] for each in kinds] == ["alarm.fired", "alarm.acknowledged"]
    found = states("background_down")
    assert found == {"federation": "firing", "chain": "acknowledged", "default": "firing"}
    assert Delivery.objects.count() == 4  # no receiver was notified of them before


def test_a_rule_that_is_switched_off_ends_its_alarms(
    evaluate: Evaluate, site_redis: RedisServer
) -> None:
    evaluate(5)
    assert len(states("background_down")) == 3
    override("background_down", enabled=False)
    evaluate(2)
    assert states("background_down") == {}
    assert AlarmEvent.objects.filter(kind=Kind.RESOLVED, rule="background_down").count() == 3


def test_a_reading_that_cannot_be_taken_shows(evaluate: Evaluate, site_redis: RedisServer) -> None:
    """Without a worker that sweeps, the fullest queues are unknown, and an alarm reports that."""
    evaluate(2)
    unknown = Evaluation.objects.get().unknown
    assert list(unknown) == ["queues"] and "within 90 s" in unknown["queues"]["error"]
    evaluate(14)
    assert states("reading_unknown") == {"queues": "firing"}
    site_redis.run("SET", keys.FULLEST, "[]")
    evaluate(8)
    assert states("reading_unknown") == {}
    assert Evaluation.objects.get().unknown == {}


def test_a_fault_of_one_reader_takes_no_other_alarm_away(
    evaluate: Evaluate, site_redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    site_redis.run("SET", keys.FULLEST, '{"not": "a list of queues"}')
    evaluate(5)
    assert Evaluation.objects.get().unknown["queues"]["error"]
    assert set(states("background_down")) == {"federation", "chain", "default"}


def test_while_redis_is_away_it_is_the_only_one_that_says_so(
    evaluate: Evaluate, site_redis: RedisServer, settings: Any
) -> None:
    evaluate(5)
    assert len(states("background_down")) == 3
    use_redis(settings, "redis://127.0.0.1:1")
    evaluate(20)
    assert states("redis_away") == {"": "firing"}
    assert states("reading_unknown") == {}
    assert len(states("background_down")) == 3  # nothing newer is known
    assert Evaluation.objects.get().unknown["workers"]["redis_away"]
    use_redis(settings, site_redis.url)
    evaluate(5)
    assert states("redis_away") == {}


def test_one_evaluation_at_a_time(evaluate: Evaluate, site_redis: RedisServer) -> None:
    evaluate()
    Evaluation.objects.update(until=time.time() + 50, done=0)
    assert not evaluation.evaluate("another")
    Evaluation.objects.update(until=0, done=evaluation.clock())
    assert not evaluation.evaluate("another")  # one has just been done


def test_who_lost_the_reservation_changes_nothing(
    evaluate: Evaluate, site_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = evaluation.take

    def overtaken(*arguments: Any) -> Any:
        Evaluation.objects.update(token="of another")
        return real(*arguments)

    evaluate()
    before = states()
    monkeypatch.setattr(evaluation, "take", overtaken)
    Evaluation.objects.update(done=0)
    assert not evaluation.evaluate("slow")
    assert states() == before


def test_the_operator_site_evaluates_when_nobody_does(
    evaluate: Evaluate, site_redis: RedisServer
) -> None:
    watch = standby.Standby(evaluation.clock)
    watch.look()  # no evaluation yet
    assert Evaluation.objects.get().by.startswith("operator site")
    evaluate()
    watch.look()
    assert Evaluation.objects.get().by.startswith("a test")
    Evaluation.objects.update(done=evaluation.clock() - 31)
    assert figures.complaint() == "alarms were not evaluated for 31 s"
    watch.look()
    assert Evaluation.objects.get().by.startswith("operator site")
    assert figures.complaint() == ""
    # While no other process evaluates, the standby does so every 10 s, leaving time for others.
    for age_s, again in ((6, False), (11, True)):
        Evaluation.objects.update(done=evaluation.clock() - age_s)
        before = Evaluation.objects.get().done
        watch.look()
        assert (Evaluation.objects.get().done != before) is again


def test_what_starts_with_the_relay_is_not_missed_at_once(
    evaluate: Evaluate, site_redis: RedisServer
) -> None:
    """Missing Celery workers fire no alarm at first: after "ready" they may need a minute."""
    starting.begin(client())
    assert 100 < site_redis.run("TTL", keys.STARTING) <= keys.STARTING_S
    evaluate(14)
    assert states("background_down") == {} and states("reading_unknown") == {"queues": "firing"}
    shown = Evaluation.objects.get().readings["background_down"]["chain"]
    assert shown[0] is None and shown[1].endswith("(the relay has just started)")
    site_redis.run("DEL", keys.STARTING)  # the grace period is over
    evaluate(5)
    assert set(states("background_down")) == {"federation", "chain", "default"}
    starting.begin(client())
    evaluate(5)
    assert set(states("background_down").values()) == {"firing"}, "a start ends no alarm"


def test_time_off_is_no_time_in_which_nobody_looked(
    evaluate: Evaluate, site_redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Time off does not count for a reading that failed and a notice that waited before it."""
    receiver = webhook("http://127.0.0.1:1/")
    evaluate(2)
    assert Evaluation.objects.get().unknown
    off_s = 728.0
    Evaluation.objects.update(done=F("done") - off_s)
    unknown = Evaluation.objects.get().unknown
    unknown["queues"]["since"] -= off_s
    Evaluation.objects.update(unknown=unknown)
    created = timezone.now() - timedelta(seconds=off_s)
    Delivery.objects.create(receiver=receiver, event_id="1", body={}, created=created)
    starting.begin(client())
    clock = evaluation.clock
    ahead_s = 0.0
    watch = standby.Standby(lambda: clock() + ahead_s)
    watch.look()
    assert Evaluation.objects.get().done > clock() - 5
    assert states("reading_unknown") == states("receiver_failing") == {}
    assert "alarms were not evaluated" not in caplog.text
    evaluate()
    ahead_s = 40.0
    watch.look()
    assert "alarms were not evaluated for 40 s" in caplog.text


def test_metrics(evaluate: Evaluate, site_redis: RedisServer) -> None:
    assert figures.read()['relay_alarms_firing{severity="critical"}'] == 0
    evaluate(5)
    found = figures.read()
    assert found['relay_alarms_firing{severity="critical"}'] == 3
    assert found['relay_alarms_firing{severity="warning"}'] == 0
    assert found["relay_alarms_evaluation_age_seconds"] < 30


def test_old_history_goes(evaluate: Evaluate, site_redis: RedisServer) -> None:
    evaluate(5)
    AlarmEvent.objects.update(at=timezone.now() - timedelta(days=91))
    evaluate()
    assert AlarmEvent.objects.count() == 3
    Evaluation.objects.update(memory={})
    evaluate()
    assert AlarmEvent.objects.count() == 0


def test_a_calm_relay_costs_few_queries(
    evaluate: Evaluate, add_worker: AddWorker, site_redis: RedisServer
) -> None:
    for number in range(20):
        add_worker(f"boot{number}", slot=str(number))
    for queue in ("federation", "chain", "default"):
        site_redis.run("SET", f"relay:background:{queue}", "test")
    site_redis.run("SET", keys.FULLEST, "[]")
    evaluate(2)
    assert states() == {}
    with CaptureQueriesContext(
        connection,
    ) as queries:
        evaluate()
    assert len(queries) <= 16


def test_subjects_are_bounded(evaluate: Evaluate, site_redis: RedisServer) -> None:
    queues = ", ".join(f'["{number}:\\u0000\\n", {9000 + number}, 1]' for number in range(80))
    site_redis.run("SET", keys.FULLEST, f"[{queues}]")
    evaluate(8)
    found = states("queue_near_full")
    assert len(found) == 50 and r"79:\x00\n" in found and set(found.values()) == {"firing"}


def test_what_is_not_among_the_worst_any_more_is_not_in_order(
    evaluate: Evaluate, site_redis: RedisServer
) -> None:
    def fill(numbers: range) -> None:
        queues = ", ".join(f'["{number}", 9000, 1]' for number in numbers)
        site_redis.run("SET", keys.FULLEST, f"[{queues}]")

    fill(range(1, 51))
    evaluate(8)
    fill(range(31, 81))  # thirty more that are just as full: the list has room for fifty
    evaluate(20)
    assert set(states("queue_near_full")) == {str(number) for number in range(1, 51)}
    assert not AlarmEvent.objects.filter(kind="resolved").exists()
    fill(range(31, 51))
    evaluate(20)
    assert set(states("queue_near_full")) == {str(number) for number in range(31, 51)}


def test_of_many_subjects_those_that_are_well_again_are(
    evaluate: Evaluate, site_redis: RedisServer, add_worker: AddWorker
) -> None:
    for number in range(60):
        lag = 900 if number == 7 else 9
        add_worker(f"boot{number}", slot=str(number), loop_lag_ms=lag)
    evaluate(5)
    assert states("loop_lag") == {"test/7": "firing"}
    add_worker("boot7", slot="7", loop_lag_ms=1)  # lower than all other workers
    evaluate(15)
    assert states("loop_lag") == {}


def test_twins_with_much_waiting(evaluate: Evaluate, site_redis: RedisServer) -> None:
    site_redis.run("SET", keys.FULLEST, "[]")
    full = [
        [90.0, keys.received(7), [90, 1, 1, 1]],
        [85.0, keys.sent(7), [85, 1, 1, 0]],
        [70.0, keys.sent(8), [70, 1, 1, 0]],
    ]
    site_redis.run("SET", keys.FULLEST_TWINS, json.dumps(full))
    evaluate(8)
    assert states("twin_waiting") == {"7": "firing"}

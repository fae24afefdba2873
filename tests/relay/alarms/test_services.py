"""Operators' actions on alarms: checked, authorised, audited, and effective at once."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.db.models import F
from django.utils import timezone

from relay.access.actor import Actor, Face
from relay.access.errors import Conflict, Denied, Invalid, NotFound
from relay.alarms import bounds, evaluation, notice, receivers, services, tasks
from relay.alarms.models import (
    Alarm,
    AlarmEvent,
    Delivery,
    Evaluation,
    Outcome,
    Receiver,
    Silence,
)
from relay.audit.models import AuditEntry
from relay.ops import background
from tests.relay.alarms.conftest import ON_DISK, Evaluate, configure, states, webhook
from tests.support.receivers import hook
from tests.support.redis_servers import RedisServer
from tests.support.waiting import wait_until

pytestmark = pytest.mark.django_db

ACTOR = Actor("olga", Face.REST, "192.0.2.7", None)
NOBODY = Actor("nobody", Face.REST, "", frozenset())


def last_entry() -> AuditEntry:
    found = AuditEntry.objects.order_by("number").last()
    assert found is not None
    return found


def firing(evaluate: Evaluate) -> Alarm:
    """Return one of three alarms that fire as no Celery worker takes tasks."""
    evaluate(5)
    return Alarm.objects.get(rule="background_down", subject="chain")


def test_acknowledging(evaluate: Evaluate, site_redis: RedisServer) -> None:
    alarm = firing(evaluate)
    services.acknowledge(alarm.pk, actor=ACTOR, note="on it")
    evaluate(2)
    alarm.refresh_from_db()
    assert (alarm.state, alarm.acknowledged_by, alarm.note) == ("acknowledged", "olga", "on it")
    entry = last_entry()
    assert (entry.action, entry.target) == ("alarm.acknowledge", "background_down chain")
    assert AlarmEvent.objects.filter(kind="acknowledged", by="olga").count() == 1
    services.unacknowledge(alarm.pk, actor=ACTOR)
    alarm.refresh_from_db()
    assert alarm.state == "firing" and alarm.acknowledged_at is None
    with pytest.raises(Conflict):
        services.unacknowledge(alarm.pk, actor=ACTOR)


def told(alarm: Alarm) -> list[tuple[str, str, str]]:
    """Return the notices of an alarm for receivers, in order: type, author and note."""
    about = {"body__alarm__rule": alarm.rule, "body__alarm__subject": alarm.subject}
    found = Delivery.objects.filter(**about).order_by("pk").values_list("body", flat=True)
    return [(each["type"], each["by"], each["note"]) for each in found]


def test_receivers_hear_who_acknowledged_it(evaluate: Evaluate, site_redis: RedisServer) -> None:
    webhook("http://127.0.0.1:1/")
    alarm = firing(evaluate)
    services.acknowledge(alarm.pk, actor=ACTOR, note="on it")
    services.unacknowledge(alarm.pk, actor=ACTOR)
    evaluate()
    assert told(alarm) == [
        ("alarm.fired", "", ""),
        ("alarm.acknowledged", "olga", "on it"),
        ("alarm.unacknowledged", "olga", ""),
    ]
    body = Delivery.objects.filter(body__type="alarm.acknowledged").get().body
    assert body["sequence"] == 4  # after three that fired
    assert "acknowledged critical: " in notice.subject_line(body)
    assert "\nby          olga\nnote        on it\n" in notice.text(body)


def test_of_what_is_silenced_receivers_hear_no_acknowledgement_either(
    evaluate: Evaluate, site_redis: RedisServer
) -> None:
    webhook("http://127.0.0.1:1/")
    until = timezone.now() + timedelta(hours=2)
    made = services.silence("background_*", until=until, actor=ACTOR)
    alarm = firing(evaluate)
    services.acknowledge(alarm.pk, actor=ACTOR, note="on it")
    assert told(alarm) == []
    services.end_silence(made.pk, actor=ACTOR)
    expected = [("alarm.fired", "", ""), ("alarm.acknowledged", "olga", "on it")]
    assert told(alarm) == expected
    evaluate()
    assert told(alarm) == expected


def test_a_changed_rule_counts_at_once(
    evaluate: Evaluate, site_redis: RedisServer, settings: Any
) -> None:
    configure(settings, "data", dir=str(ON_DISK))
    webhook("http://127.0.0.1:1/")
    evaluate()
    assert states("disk") == {}
    services.set_rule("disk", threshold=0.1, hold_s=0, actor=ACTOR)
    assert list(states("disk").values()) == ["firing"]
    alarm = Alarm.objects.get(rule="disk")
    assert "bytes" in alarm.detail
    services.set_rule("disk", enabled=False, actor=ACTOR)
    assert states("disk") == {}
    assert [kind for kind, _, _ in told(alarm)] == ["alarm.fired", "alarm.resolved"]
    services.set_rule("disk", threshold=0.1, hold_s=30, actor=ACTOR)
    assert list(states("disk").values()) == ["pending"]
    Evaluation.objects.update(done=F("done") - bounds.LATE_S)
    services.set_rule("disk", threshold=0.1, hold_s=0, actor=ACTOR)
    assert list(states("disk").values()) == ["pending"], "of readings that old nothing is said"


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("face", [Face.REST, Face.CLI])
def test_receivers_are_told_when_the_change_is_committed(
    site_redis: RedisServer, settings: Any, face: Face, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This process notifies receivers; a command hands that to the Celery workers."""
    started: list[str] = []  # this process's broker may differ from the test's Redis
    monkeypatch.setattr(background, "hand_over", lambda task, **_: started.append(task))
    configure(settings, "alarms", allow_private=True)
    with hook() as server:
        webhook(server.url)
        assert evaluation.evaluate("a test")
        services.set_rule("background_down", hold_s=0, actor=replace(ACTOR, face=face))
        assert started == (["alarms.deliver"] if face is Face.CLI else [])
        if face is Face.CLI:
            tasks.deliver()
        wait_until(lambda: len(server.documents) == 3, 5)
        # Wait for the thread to end: it must not use the tables of the next test.
        wait_until(lambda: not Receiver.objects.exclude(busy_until=0).exists(), 5)
    assert {each["alarm"]["rule"] for each in server.documents} == {"background_down"}


def test_what_ended_is_not_acknowledged_the_next_time(
    evaluate: Evaluate, site_redis: RedisServer
) -> None:
    alarm = firing(evaluate)
    services.acknowledge(alarm.pk, actor=ACTOR)
    site_redis.run("SET", "relay:background:chain", "test")
    evaluate(4)
    with pytest.raises(Conflict, match="it is resolved"):
        services.acknowledge(alarm.pk, actor=ACTOR)
    site_redis.run("DEL", "relay:background:chain")
    evaluate(5)
    alarm.refresh_from_db()
    assert (alarm.state, alarm.repeats, alarm.acknowledged_by) == ("firing", 1, "")


def test_silencing_shows_at_once_and_ends_at_once(
    evaluate: Evaluate, site_redis: RedisServer
) -> None:
    firing(evaluate)
    until = timezone.now() + timedelta(hours=2)
    made = services.silence("background_*", "ch?in", until=until, actor=ACTOR, note="known")
    assert states("background_down")["chain"] == "silenced"
    assert states("background_down")["default"] == "firing"
    assert last_entry().action == "silence.add"
    services.end_silence(made.pk, actor=ACTOR)
    assert states("background_down")["chain"] == "firing"
    assert last_entry().action == "silence.end"
    with pytest.raises(NotFound):
        services.end_silence(made.pk, actor=ACTOR)


@pytest.mark.parametrize(
    ("rule", "subject", "hours", "field"),
    [
        ("no_rule", "*", 1, "rule"),
        ("disk", "", 1, "subject"),
        ("disk", "*", -1, "until"),
        ("disk", "*", 24 * 400, "until"),
    ],
)
def test_a_silence_that_makes_no_sense(rule: str, subject: str, hours: int, field: str) -> None:
    with pytest.raises(Invalid) as refused:
        until = timezone.now() + timedelta(hours=hours)
        services.silence(rule, subject, until=until, actor=ACTOR)
    assert list(refused.value.fields) == [field]
    assert not Silence.objects.exists()


def test_changing_a_rule() -> None:
    changed = services.set_rule("disk", threshold=80, actor=ACTOR)
    assert changed.limits.threshold == 80 and changed.limits.clear == pytest.approx(75.56, abs=0.1)
    assert changed.changed and changed.enabled
    entry = last_entry()
    assert (entry.action, entry.target, entry.before) == ("rule.set", "disk", None)
    assert entry.after == {"threshold": 80, "clear": None, "hold_s": None, "enabled": True}
    number = entry.number
    assert not services.set_rule("disk", actor=ACTOR).changed
    assert last_entry().number == number + 1
    services.set_rule("disk", actor=ACTOR)  # no change
    assert last_entry().number == number + 1


@pytest.mark.parametrize(
    ("key", "fields", "field"),
    [
        ("disk", {"threshold": -1}, "threshold"),
        ("disk", {"threshold": 0}, "threshold"),
        ("disk", {"threshold": float("nan")}, "threshold"),
        ("disk", {"clear": 95}, "clear"),
        ("certificate_expiry", {"clear": 20}, "clear"),
        ("disk", {"hold_s": 1e9}, "hold_s"),
        ("redis_away", {"threshold": 2}, "threshold"),
    ],
)
def test_a_rule_that_makes_no_sense(key: str, fields: dict[str, float], field: str) -> None:
    with pytest.raises(Invalid) as refused:
        services.set_rule(key, actor=ACTOR, **fields)
    assert list(refused.value.fields) == [field]


def test_receivers(settings: Any) -> None:
    added = receivers.add_receiver(
        "pager", "webhook", "https://hooks.example.org/T0P/SECRET?x=1", actor=ACTOR
    )
    assert len(added.secret) > 30
    shown = last_entry().after
    assert shown["target"] == "https://hooks.example.org/…"
    receivers.change_receiver(added.receiver.pk, enabled=False, actor=ACTOR)
    assert last_entry().before["enabled"] and not last_entry().after["enabled"]
    receivers.remove_receiver(added.receiver.pk, actor=ACTOR)
    assert not Receiver.objects.exists()
    for entry in AuditEntry.objects.all():
        assert "SECRET" not in f"{entry.before}{entry.after}"
        assert added.secret not in f"{entry.before}{entry.after}"


@pytest.mark.parametrize("tail", ["?key=SECRET", "?key=a/SECRET", "/?key=SECRET", "/SECRET"])
def test_what_may_be_a_secret_of_a_target_is_not_shown(tail: str) -> None:
    added = receivers.add_receiver("pager", "webhook", f"https://x.example{tail}", actor=ACTOR)
    assert receivers.shown_target(added.receiver) == "https://x.example/…"


def test_switching_a_receiver_off_gives_up_what_waits(
    evaluate: Evaluate, site_redis: RedisServer
) -> None:
    added = receivers.add_receiver("pager", "webhook", "https://hooks.example/", actor=ACTOR)
    firing(evaluate)
    assert Delivery.objects.filter(outcome=Outcome.WAITING).count() == 3
    receivers.change_receiver(added.receiver.pk, enabled=False, actor=ACTOR)
    assert not Delivery.objects.filter(outcome=Outcome.WAITING).exists()


def heard(name: str) -> list[tuple[str, str]]:
    found = Delivery.objects.filter(receiver__name=name, outcome=Outcome.WAITING).order_by("pk")
    return [(each.body["type"], each.body["alarm"]["subject"]) for each in found]


def test_a_new_receiver_hears_of_what_fires(evaluate: Evaluate, site_redis: RedisServer) -> None:
    alarm = firing(evaluate)
    services.acknowledge(alarm.pk, actor=ACTOR)
    until = timezone.now() + timedelta(hours=1)
    services.silence("background_down", "default", until=until, actor=ACTOR)
    receivers.add_receiver("pager", "webhook", "https://hooks.example/", actor=ACTOR)
    assert heard("pager") == [(notice.FIRED, "federation")], "neither acknowledged nor silenced"
    evaluate(2)
    assert len(heard("pager")) == 1, "once"


def test_a_receiver_that_comes_to_hear_more_hears_of_what_fires(
    evaluate: Evaluate, site_redis: RedisServer
) -> None:
    url = "https://hooks.example/"
    added = receivers.add_receiver("pager", "webhook", url, enabled=False, actor=ACTOR)
    firing(evaluate)
    assert heard("pager") == []
    number = added.receiver.pk
    receivers.change_receiver(number, enabled=True, actor=ACTOR)
    assert len(heard("pager")) == 3
    receivers.change_receiver(number, name="pager", actor=ACTOR)
    assert len(heard("pager")) == 3, "it heard of them"
    Alarm.objects.filter(subject="chain").update(rule="limit_storm")  # a rule of severity warning
    receivers.change_receiver(number, min_severity="critical", actor=ACTOR)
    receivers.change_receiver(number, min_severity="info", actor=ACTOR)
    assert len(heard("pager")) == 4
    receivers.change_receiver(number, target=f"{url}other", actor=ACTOR)
    assert len(heard("pager")) == 7, "the new place heard of nothing"


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"name": "a\nb"}, "name"),
        ({"target": "ftp://example.org/"}, "target"),
        ({"target": "https://user:pass@example.org/"}, "target"),
        ({"target": "https://example.org/a b"}, "target"),
        ({"target": "https://example.org/#top"}, "target"),
        ({"target": "https://[::1/"}, "target"),
        ({"target": "http://example.org/"}, "target"),
        ({"secret": "short"}, "secret"),
        ({"kind": "email", "target": "ops@example.org"}, "kind"),
        ({"kind": "pigeon"}, "kind"),
    ],
)
def test_a_receiver_that_makes_no_sense(fields: dict[str, str], field: str) -> None:
    values = {"name": "pager", "kind": "webhook", "target": "https://example.org/", **fields}
    with pytest.raises(Invalid) as refused:
        receivers.add_receiver(**values, actor=ACTOR)
    assert field in refused.value.fields


def test_an_address_is_one(settings: Any) -> None:
    configure(settings, "email", host="127.0.0.1", sender="relay@example.org")
    with pytest.raises(Invalid):
        receivers.add_receiver("mail", "email", "ops at example", actor=ACTOR)
    added = receivers.add_receiver("mail", "email", "ops@example.org", actor=ACTOR)
    assert added.secret == ""


def test_who_may_not(evaluate: Evaluate, site_redis: RedisServer) -> None:
    alarm = firing(evaluate)
    added = receivers.add_receiver("pager", "webhook", "https://hooks.example/", actor=ACTOR)
    entries = AuditEntry.objects.count()
    until = timezone.now() + timedelta(hours=1)
    number = added.receiver.pk
    for act in (
        lambda: services.acknowledge(alarm.pk, actor=NOBODY),
        lambda: services.unacknowledge(alarm.pk, actor=NOBODY),
        lambda: services.silence("disk", until=until, actor=NOBODY),
        lambda: services.end_silence(1, actor=NOBODY),
        lambda: services.set_rule("disk", threshold=1, actor=NOBODY),
        lambda: receivers.add_receiver("b", "webhook", "https://b.example/", actor=NOBODY),
        lambda: receivers.change_receiver(number, enabled=False, actor=NOBODY),
        lambda: receivers.remove_receiver(number, actor=NOBODY),
        lambda: receivers.send_test(number, actor=NOBODY),
    ):
        with pytest.raises(Denied):
            act()
    assert AuditEntry.objects.count() == entries

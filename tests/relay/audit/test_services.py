"""`relay.audit.services`: every change has an entry, and every entry has a change."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Group
from django.core.exceptions import ValidationError
from redis.exceptions import ConnectionError as RedisConnectionError

from relay.access.actor import SYSTEM, Actor, Face
from relay.access.errors import Away, Denied, Invalid
from relay.audit import chain, services
from relay.audit.models import AuditEntry

pytestmark = pytest.mark.django_db(transaction=True)

OPERATOR = Actor("olga", Face.ADMIN, "192.0.2.7", frozenset({"relay_sessions.kick_session"}))


def test_a_change_is_written_down() -> None:
    with services.change(OPERATOR, "session.kick", target="7:phone") as change:
        change.before = {"epoch": 5}
        change.after = None
    entry = AuditEntry.objects.get()
    assert (entry.number, entry.actor, entry.face, entry.address) == (
        *(1, "olga", "admin", "192.0.2.7"),
    )
    assert (entry.action, entry.target) == ("session.kick", "7:phone")
    assert (entry.before, entry.after) == ({"epoch": 5}, None)
    assert entry.previous == chain.NO_HASH
    assert services.verify() == services.head() == (1, entry.hash)


def test_entries_are_chained() -> None:
    for target in range(5):
        with services.change(SYSTEM, "session.kick", target=target):
            pass
    entries = list(AuditEntry.objects.order_by("number"))
    assert [entry.number for entry in entries] == [1, 2, 3, 4, 5]
    assert [entry.previous for entry in entries[1:]] == [entry.hash for entry in entries[:-1]]
    assert services.verify().number == 5


def test_who_may_not_changes_nothing() -> None:
    with (
        pytest.raises(Denied, match=r"relay_ops\.drain_worker"),
        services.change(OPERATOR, "worker.drain", target="boot"),
    ):
        Group.objects.create(name="changed")
    assert not AuditEntry.objects.exists()
    assert not Group.objects.filter(name="changed").exists()


@pytest.mark.parametrize(
    ("raised", "told"),
    [
        (KeyError("bug"), KeyError),
        (RedisConnectionError("refused"), Away),
        (ValidationError({"count": "too much"}), Invalid),
    ],
)
def test_a_failure_takes_the_entry_back(raised: Exception, told: type[Exception]) -> None:
    with pytest.raises(told), services.change(SYSTEM, "group.add", target="changed"):
        Group.objects.create(name="changed")
        raise raised
    assert not AuditEntry.objects.exists()
    assert not Group.objects.filter(name="changed").exists()


def test_nothing_to_do_is_no_entry() -> None:
    with services.change(SYSTEM, "session.kick", target="7") as change:
        change.happened = False
    assert services.head() == chain.EMPTY


def test_an_unknown_action_is_a_mistake() -> None:
    with pytest.raises(KeyError), services.change(SYSTEM, "session.kiss", target="7"):
        pass


def test_values_are_bounded_and_storable() -> None:
    actor = Actor("o\0" + "x" * 500, Face.REST, "a" * 200, None)
    with services.change(actor, "session.kick", target="t\udcff" + "y" * 500) as change:
        change.before = {"long": "ä" * 10_000}
        change.after = "\0"
    entry = AuditEntry.objects.get()
    assert len(entry.actor) == 150 and "\0" not in entry.actor
    assert len(entry.target) == 300 and len(entry.address) == 64
    assert entry.before["size_bytes"] > 10_000 and len(entry.before_json) <= chain.MAX_VALUE_BYTES
    assert entry.after == "\0"
    assert services.verify().number == 1

"""Services for the policies of the bridge."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proto.lattice.state import POLICIES
from relay.access.actor import SYSTEM, Actor, Face
from relay.access.errors import Denied, Invalid, NotFound
from relay.audit.models import AuditEntry
from relay.lattice import services
from relay.lattice.models import LatticePolicy
from relay.ops import pending
from tests.relay.conftest import use_redis
from tests.support.redis_servers import RedisServer

pytestmark = pytest.mark.django_db(transaction=True)


def policy(**more: Any) -> LatticePolicy:
    given = {"direction": "to_twin", "twins": "7", "entities": "M*", "names": "calc.*", **more}
    return LatticePolicy(name=given.pop("name", "calc"), **given)


def published(server: RedisServer) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(server.run("GET", POLICIES))
    return found


def test_a_policy_is_told_changed_and_removed(site_redis: RedisServer) -> None:
    services.put(policy(), actor=SYSTEM)
    services.put(policy(name="off", enabled=False), actor=SYSTEM)
    assert [each["name"] for each in published(site_redis)] == ["calc"]
    services.put(policy(per_s=3.5, timeout_ms=100), actor=SYSTEM)
    (told,) = published(site_redis)
    assert (told["per_s"], told["timeout_ms"], told["twins"]) == (3.5, 100, "7")
    services.remove("calc", actor=SYSTEM)
    assert published(site_redis) == []
    with pytest.raises(NotFound, match="there is no policy 'calc'"):
        services.remove("calc", actor=SYSTEM)
    entries = AuditEntry.objects.filter(target="calc").order_by("number")
    assert [each.action for each in entries] == [
        "lattice_policy.set", "lattice_policy.set", "lattice_policy.remove",
    ]  # fmt: skip
    assert entries[1].before["per_s"] == 0 and entries[1].after["per_s"] == 3.5


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("twins", "0"),
        ("twins", ""),
        ("entities", "x" * 300),
        ("names", "a,,b"),
        ("direction", "both"),
        ("per_s", -1),
        ("max_bytes", 0),
        ("timeout_ms", 0),
    ],
)
def test_fields_out_of_bounds(site_redis: RedisServer, field: str, value: Any) -> None:
    with pytest.raises(Invalid) as caught:
        services.put(policy(**{field: value}), actor=SYSTEM)
    assert set(caught.value.fields) == {field}
    assert not LatticePolicy.objects.exists() and not AuditEntry.objects.exists()


def test_who_may_not(site_redis: RedisServer) -> None:
    nobody = Actor("nobody", Face.REST, "", frozenset())
    verbs: list[tuple[Any, tuple[Any, ...]]] = [
        (services.put, (policy(),)),
        (services.remove, ("calc",)),
        (services.put_link, ("M", "V", "rmb:twin", "default", {})),
        (services.remove_link, ("M", "rmb:twin", "default")),
        (services.call, ("M", "A.B")),
    ]
    for verb, arguments in verbs:
        with pytest.raises(Denied):
            verb(*arguments, actor=nobody)


def test_a_decision_without_redis_comes_into_force_later(
    valkey: RedisServer, no_redis: None, settings: Any
) -> None:
    services.put(policy(), actor=SYSTEM)
    assert pending.waiting() == ["lattice"]
    use_redis(settings, valkey.url)
    assert pending.settle()
    assert [each["name"] for each in published(valkey)] == ["calc"]

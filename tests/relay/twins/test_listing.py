"""The search among 50,000 twins, and the services of the chain."""

from __future__ import annotations

import statistics
import time
from typing import Any

import pytest

from proto.identity import ss58
from relay.access.actor import Actor, Face
from relay.access.errors import Away, Conflict, Denied, Invalid
from relay.audit.models import AuditEntry
from relay.ops import background
from relay.twins import chain_services, chain_state, listing
from relay.twins.models import Twin
from tests.support.devchain import Devchain
from tests.support.redis_servers import RedisServer

pytestmark = pytest.mark.django_db(transaction=True)

ACTOR = Actor("tester", Face.CLI, "", None)
NOBODY = Actor("nobody", Face.REST, "", frozenset())


def account(number: int) -> bytes:
    return number.to_bytes(32, "little")


def ids(*words: str, **filters: Any) -> list[int]:
    return [twin.id for twin in listing.search(*words, **filters).order_by("id")[:20]]


def test_search() -> None:
    for number, relays in enumerate(["a.example", "b.a.example_a.example", "a.example.org", ""], 1):
        Twin.objects.create(id=number, account=account(number), relays=relays)
    Twin.objects.create(id=5, account=account(5), source=Twin.Source.CHAIN, stale_since=9)
    assert ids() == [1, 2, 3, 4, 5]
    assert ids("3") == [3] and ids("99") == []
    assert ids(ss58.encode(account(2))) == [2] and ids("0x" + account(4).hex()) == [4]
    assert ids("EXAMPLE.org") == [3]
    assert ids(relay="a.example") == [1, 2]
    assert ids(relay="A.Example.:443") == [1, 2]
    assert ids(stale=True) == [5] and ids(stale=False) == [1, 2, 3, 4]
    assert ids(source="chain") == [5] and ids("5", source="registry") == []
    for wrong in (
        {"relay": "a_b"}, {"source": "moon"}, {"text": "x" * 300}, {"relay": "r" * 2000},
    ):  # fmt: skip
        with pytest.raises(Invalid):
            listing.search(**wrong)


def test_fifty_thousand_twins() -> None:
    Twin.objects.bulk_create(
        [
            Twin(id=number, account=account(number), relays=f"r{number % 97}.example")
            for number in range(1, 50_001)
        ],
        batch_size=5000,
    )
    took_s = []
    for filters in (
        {}, {"text": "49999"}, {"text": ss58.encode(account(40_000))}, {"text": "r7.ex"},
        {"relay": "r96.example"},
    ):  # fmt: skip
        for _ in range(3):
            began = time.perf_counter()
            assert list(listing.search(**filters).order_by("id")[:100])
            took_s.append(time.perf_counter() - began)
    assert statistics.median(took_s) < 0.2


def test_the_chain(
    chain: Devchain, site_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    status = chain_services.status()
    assert (status.following, status.imported.state, status.height) == (False, "never", None)
    started: list[str] = []
    monkeypatch.setattr(background, "hand_over", started.append)
    with pytest.raises(Denied):
        chain_services.start_import(actor=NOBODY)
    chain_services.start_import(actor=ACTOR)
    assert started == ["chain.import_twins"] and chain_services.status().imported.state == "wanted"
    chain_services.want_import(actor=ACTOR)
    assert chain_state.read(site_redis.client()).imported.wanted == 1
    assert {entry.action for entry in AuditEntry.objects.all()} == {"chain.import"}


def test_twins_of_the_registry_are_not_imported(site_redis: RedisServer) -> None:
    with pytest.raises(Conflict, match="registry"):
        chain_services.start_import(actor=ACTOR)


@pytest.mark.usefixtures("no_redis")
def test_the_chain_without_redis() -> None:
    with pytest.raises(Away):
        chain_services.status()

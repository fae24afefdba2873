"""Relay names are canonical whatever a twin's source, and are shown as they were entered."""

from __future__ import annotations

import pytest

from proto.chain.twin import Twin as ChainTwin
from relay.twins import mirror
from relay.twins.models import Twin
from relay.twins.source import TwinRecord, from_text, to_text

ACCOUNT = bytes(range(32))
ENTERED = "LOCALHOST:8080_localhost:8080._[::1]:8080_B.example.:443_ws:/127.0.0.1:9"
NAMES = ("127.0.0.1:8080", "b.example", "ws:/127.0.0.1:9")


@pytest.mark.django_db
def test_of_the_registry() -> None:
    row = Twin.objects.create(id=7, account=ACCOUNT, relays=ENTERED)
    assert row.record().relays == NAMES
    assert Twin.objects.get(id=7).relays == ENTERED


def test_of_the_shared_cache() -> None:
    """Names are canonical even if an older release wrote the cache entry."""
    older = to_text(TwinRecord(7, ACCOUNT, None, tuple(ENTERED.split("_")), 1), 5)
    assert ENTERED in older
    assert from_text(7, older)[0].relays == NAMES


@pytest.mark.django_db
def test_of_the_chain() -> None:
    twin = ChainTwin(7, ACCOUNT, b"B.Example_b.example_A.example")
    assert mirror.record_of(twin, 40).relays == ("a.example", "b.example")
    mirror.keep_read([twin], 40)
    assert mirror.records([7])[7].relays == ("a.example", "b.example")
    assert Twin.objects.get(id=7).relays == "A.example_B.Example_b.example"


@pytest.mark.django_db
def test_another_spelling_on_the_chain_is_shown() -> None:
    mirror.keep_read([ChainTwin(7, ACCOUNT, b"B.Example")], 40)
    mirror.reconcile([7], {7: ChainTwin(7, ACCOUNT, b"b.example")}, 41)
    assert Twin.objects.get(id=7).relays == "b.example"

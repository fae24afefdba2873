"""Startup against a real test node: the own twin, and its update on the chain."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Iterator

import pytest

from chain import writes
from peer.gateway import startup
from peer.gateway.startup import StartError
from peer.identity import Identity
from peer.twin_sources.chain import ChainTwins
from peer.twins import Twin
from proto.identity.signing import KeyType
from tests.support import identities
from tests.support.devchain import Devchain, running_devchain
from tests.support.identities import twin
from tests.support.redis_servers import free_port

RICH = 10**9
DOMAINS = ("r1.example", "r2.example")


def identity_of(who: identities.Twin) -> Identity:
    return Identity.from_secret(f"0x{who.mini_secret.hex()}", who.key_type)


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Devchain]:
    """Start a node that has no twin at first."""
    with running_devchain(tmp_path_factory.mktemp("chain")) as node:
        yield node


@pytest.fixture
async def source(chain: Devchain) -> AsyncIterator[ChainTwins]:
    twins = ChainTwins([chain.url])
    yield twins
    await twins.aclose()


async def found(who: identities.Twin, source: ChainTwins) -> Twin:
    return await startup.own_twin(identity_of(who), source)


async def test_the_own_twin_is_found_by_its_account(chain: Devchain, source: ChainTwins) -> None:
    chain.put_twin(twin(7), "r1.example")
    own = await found(twin(7), source)
    assert own == Twin(7, twin(7).account, twin(7).encryption_key.public, ("r1.example",))


async def test_a_key_without_a_twin_is_told(source: ChainTwins) -> None:
    with pytest.raises(StartError, match="no twin found on this network with given key"):
        await found(twin(999), source)


async def test_a_chain_that_is_away_is_another_matter() -> None:
    away = ChainTwins([f"ws://127.0.0.1:{free_port()}"])
    with pytest.raises(StartError, match="failed to get own twin id: no chain node answered"):
        await found(twin(7), away)
    await away.aclose()


@pytest.mark.parametrize(
    ("listed", "differs"),
    [
        ("r1.example_r2.example", False),
        ("r2.example_r1.example", False),
        ("r1.example", True),
        ("r1.example_r2.example_r3.example", True),
        ("", True),
    ],
)
async def test_relays_are_compared_as_a_set(
    chain: Devchain, source: ChainTwins, listed: str, differs: bool
) -> None:
    chain.put_twin(twin(8), listed)
    own = await found(twin(8), source)
    assert bool(startup.differences(own, identity_of(twin(8)), DOMAINS)) is differs


async def test_another_encryption_key_is_a_difference(chain: Devchain, source: ChainTwins) -> None:
    chain.put_twin(twin(9), "r1.example_r2.example", pk=twin(8).encryption_key.public)
    own = await found(twin(9), source)
    (text,) = startup.differences(own, identity_of(twin(9)), DOMAINS)
    assert text.startswith(f"pk: 0x{twin(8).encryption_key.public.hex()}; it should be 0x")


@pytest.mark.parametrize("key_type", KeyType)
async def test_an_update_is_on_the_chain_and_final(
    chain: Devchain, source: ChainTwins, key_type: KeyType
) -> None:
    who = dataclasses.replace(twin(20 + key_type.value), key_type=key_type)
    chain.put_twin(who, "old.example", pk=twin(8).encryption_key.public)
    chain.set_balance(who.account, RICH)
    identity = identity_of(who)
    own = await found(who, source)
    assert len(startup.differences(own, identity, DOMAINS)) == 2
    updated = await startup.update(own, identity, DOMAINS, source, [chain.url])
    assert updated == Twin(who.id, who.account, identity.pk, DOMAINS)
    assert await source.by_id(who.id) == updated
    assert not startup.differences(updated, identity, DOMAINS)


async def test_who_cannot_pay_is_told(chain: Devchain, source: ChainTwins) -> None:
    chain.put_twin(twin(30), "old.example")
    chain.set_balance(twin(30).account, 0)
    own = await found(twin(30), source)
    with pytest.raises(StartError, match=r"failed to update twin information: .*pay some fees"):
        await startup.update(own, identity_of(twin(30)), DOMAINS, source, [chain.url])
    assert (await found(twin(30), source)).relays == ("old.example",)


async def test_a_node_lost_while_it_is_written_does_not_spoil_the_start(
    chain: Devchain, source: ChainTwins, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Startup succeeds if the node's answer is lost: the twin itself shows that it was updated."""
    monkeypatch.setitem(writes._LIMITS_S, writes.Until.FINALIZED, 1.0)
    chain.put_twin(twin(31), "old.example")
    chain.set_balance(twin(31).account, RICH)
    own = await found(twin(31), source)
    chain.set(finality_delay_s=60)
    try:
        updated = await startup.update(own, identity_of(twin(31)), DOMAINS, source, [chain.url])
    finally:
        chain.set(finality_delay_s=0.1)
    assert updated.relays == DOMAINS

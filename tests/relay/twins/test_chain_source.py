"""The chain as a twin source, with a test node: answers, silence, and nodes that lag."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from asgiref.sync import sync_to_async

from proto.chain.twin import Twin as ChainTwin
from relay.twins import chain_source, mirror
from relay.twins.cache import TwinCache, TwinLookupError
from relay.twins.chain_source import ChainSource
from relay.twins.models import Twin
from relay.twins.source import TwinSourceError
from tests.support.devchain import Devchain, running_devchain
from tests.support.identities import twin
from tests.support.waiting import eventually

pytestmark = pytest.mark.django_db(transaction=True)

SEVEN, EIGHT = twin(7, "localhost"), twin(8, "a1.example_b1.example")
PATIENCE_S = 0.3


@pytest.fixture
def chain(tmp_path: Path) -> Iterator[Devchain]:
    with running_devchain(tmp_path, (SEVEN, EIGHT)) as node:
        yield node


@pytest.fixture
async def source(chain: Devchain) -> AsyncIterator[ChainSource]:
    opened = ChainSource([chain.url], patience_s=PATIENCE_S)
    yield opened
    chain.set(held=[])
    await opened.close()


async def keep(*changes: tuple[ChainTwin, int]) -> None:
    await sync_to_async(mirror.keep_changed)(changes)


def changed(relay: bytes) -> ChainTwin:
    return ChainTwin(7, SEVEN.account, relay, (), SEVEN.encryption_key.public)


async def test_twins_are_read_and_mirrored(source: ChainSource) -> None:
    found = await source.fetch([7, 8, 9])
    assert sorted(found) == [7, 8]
    assert (found[7].account, found[7].pk) == (SEVEN.account, SEVEN.encryption_key.public)
    assert found[8].relays == ("a1.example", "b1.example")
    assert await sync_to_async(Twin.objects.count)() == 2
    assert await source.highest_id() == 8
    assert source.away == ""
    assert source.figures() == {
        "relay_chain_queries_total": 2,
        "relay_chain_query_failures_total": 0,
    }


async def test_a_twin_that_anybody_can_sign_for_does_not_exist(
    source: ChainSource, chain: Devchain
) -> None:
    await sync_to_async(Twin.objects.create)(
        id=9, account=bytes(32), source=Twin.Source.CHAIN, height=0
    )
    chain.put_twins([{"id": 9, "account": f"0x{'00' * 32}"}])
    assert sorted(await source.fetch([7, 9])) == [7]
    assert await sync_to_async(mirror.records)([9]) == {}, "what an earlier release kept goes"


async def test_a_node_that_lags_is_not_believed(source: ChainSource) -> None:
    await source.fetch([7])
    await keep((changed(b"later.example"), 1000))
    assert (await source.fetch([7]))[7].relays == ("later.example",)
    await keep((ChainTwin(50, twin(50).account, None), 1000))
    assert await source.highest_id() == 50
    assert sorted(await source.fetch([50])) == [50]


async def test_a_node_that_is_behind_the_flush_is_asked_again(source: ChainSource) -> None:
    await source.fetch([7])
    await sync_to_async(mirror.mark_stale)(1000)
    with pytest.raises(TwinSourceError, match="behind") as caught:
        await source.fetch([7, 8])
    assert sorted(caught.value.known) == [7, 8]
    assert source.away == "", "it did answer"


async def test_without_a_node_the_mirror_is_what_is_known(
    source: ChainSource, chain: Devchain
) -> None:
    await source.fetch([7])
    chain.stop()
    with pytest.raises(TwinSourceError, match="no chain node answered") as caught:
        await source.fetch([7, 8])
    assert caught.value.known.keys() == {7}
    assert "no chain node answered" in source.away
    with pytest.raises(TwinSourceError):
        await source.highest_id()
    assert source.failures == 2
    chain.start()

    async def back() -> bool:
        try:
            return sorted(await source.fetch([7, 8])) == [7, 8]
        except TwinSourceError:
            return False

    await eventually(back)
    assert source.away == ""


async def test_a_chain_that_is_back_is_noticed_without_a_look_up(
    source: ChainSource, chain: Devchain
) -> None:
    cache = TwinCache(source)
    assert await cache.look_up(7)
    chain.stop()
    with pytest.raises(TwinLookupError, match="no chain node answered"):
        await cache.look_up(8)
    chain.start()
    await eventually(lambda: source.away == "")
    await cache.close()


async def test_a_mute_chain_is_waited_for_once(source: ChainSource, chain: Devchain) -> None:
    """Only the first look-up waits for a chain that does not answer.

    This includes the query for the highest id, which a worker makes first after its start.
    """
    await source.fetch([7, 8])
    chain.set(held=["state_queryStorageAt"])
    cache = TwinCache(source)
    began = time.monotonic()
    assert (await cache.look_up(7)).id == 7
    assert PATIENCE_S <= time.monotonic() - began < 2 * PATIENCE_S
    began = time.monotonic()
    assert (await cache.look_up(8)).id == 8
    assert time.monotonic() - began < PATIENCE_S
    unknown = asyncio.create_task(cache.look_up(9))
    chain.set(held=[])
    assert await unknown is None, "only the chain can say that there is none"
    await cache.close()


async def test_a_slow_chain_is_not_waited_for_when_the_mirror_knows(
    source: ChainSource, chain: Devchain
) -> None:
    await source.fetch([7])
    chain.set(held=["state_queryStorageAt"])
    began = time.monotonic()
    with pytest.raises(TwinSourceError, match="slow") as caught:
        await source.fetch([7])
    assert PATIENCE_S <= time.monotonic() - began < 2
    assert caught.value.known.keys() == {7}
    unknown = asyncio.create_task(source.fetch([8]))
    await asyncio.sleep(2 * PATIENCE_S)
    assert not unknown.done(), "nobody knows it but the chain"
    chain.set(held=[])
    assert sorted(await unknown) == [8]


async def test_queries_do_not_pile_up(
    source: ChainSource, chain: Devchain, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chain_source, "MAX_QUERIES", 2)
    await source.fetch([7])
    chain.set(held=["state_queryStorageAt"])
    for _ in range(2):
        with pytest.raises(TwinSourceError, match="slow"):
            await source.fetch([7])
    with pytest.raises(TwinSourceError, match="2 queries wait") as caught:
        await source.fetch([7, 8])
    assert caught.value.known.keys() == {7}


async def test_without_the_mirror_the_chain_is_enough(
    source: ChainSource, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from django.db import OperationalError

    def broken(*_: object) -> None:
        raise OperationalError("no database")

    for name in ("reconcile", "records", "highest_id"):
        monkeypatch.setattr(mirror, name, broken)
    found = await source.fetch([7, 9])
    assert found.keys() == {7} and found[7].account == SEVEN.account
    assert await source.highest_id() == 8
    assert caplog.text.count("the mirror of the chain cannot be") == 2

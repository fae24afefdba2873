"""`relay.federation.lease`: who may drain a shard."""

from __future__ import annotations

import asyncio

import pytest

from relay.federation import lease
from relay.federation.lease import Lease
from tests.relay.federation.conftest import Outgoing
from tests.support.partner_server import partner
from tests.support.relay_process import eventually


async def test_a_lease_that_ran_out_is_not_had_again(
    out: Outgoing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A drainer that stood still has put messages aside: it must end, not go on without them."""
    monkeypatch.setattr(lease, "RENEW_S", 0.05)
    await out.start(1)
    mine = Lease(out.sender.pipe, 0)
    assert await mine.take()
    assert mine.held
    mine._until = 0.0  # as after standing still for longer than it lasts
    assert mine._renewal is not None
    async with asyncio.timeout(10):
        await mine._renewal
    assert not mine.held


async def test_nothing_is_sent_without_the_lease(out: Outgoing) -> None:
    """Somebody else may be at it: it is looked at before each request, not now and then."""
    async with partner() as other:
        twin = out.twin(8, other.domain)
        await out.start(0)
        out.put(twin, "first")
        await eventually(lambda: other.uids == ["first"])
        (shard,) = out.sender._shards
        shard._lease._until = 0.0  # as after standing still
        out.put(twin, "second")
        (drain,) = out.drains
        async with asyncio.timeout(20):
            assert await drain, "there is more for a successor"
        assert other.uids == ["first"]
        out.drains.clear()
        await out.sender.close()

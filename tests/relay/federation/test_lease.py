"""`relay.federation.lease`: who may drain a shard."""

from __future__ import annotations

import asyncio

import pytest

from relay.federation import lease
from relay.federation.lease import Lease
from tests.relay.federation.conftest import Outgoing


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

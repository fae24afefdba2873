"""`relay.federation.lease`: which drainer may drain a shard."""

from __future__ import annotations

import asyncio

import pytest

from relay.federation import lease
from relay.federation.lease import MAX_DOUBTFUL, UNKNOWN, Lease
from relay.queues import keys
from tests.relay.federation.conftest import Outgoing
from tests.support.partner_server import partner
from tests.support.waiting import eventually


async def test_a_lease_that_ran_out_is_not_had_again(
    out: Outgoing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A drainer does not renew an expired lease.

    A drainer that was suspended has set messages aside, so it must end rather than continue without
    them.
    """
    monkeypatch.setattr(lease, "RENEW_S", 0.05)
    await out.start(1)
    mine = Lease(out.sender.pipe, 0)
    assert await mine.take()
    assert mine.held
    mine._until = 0.0  # as after a suspension that is longer than the lease
    assert mine._renewal is not None
    async with asyncio.timeout(60):
        await mine._renewal
    assert not mine.held


async def test_nothing_is_sent_without_the_lease(out: Outgoing) -> None:
    """The drainer checks its lease before each request: another one may have taken the shard."""
    async with partner() as other:
        twin = out.twin(8, other.domain)
        await out.start(0)
        out.put(twin, "first")
        await eventually(lambda: other.uids == ["first"])
        (shard,) = out.sender._shards
        shard.lease._until = 0.0  # as after a suspension
        out.put(twin, "second")
        (drain,) = out.drains
        async with asyncio.timeout(60):
            assert await drain, "there is more for a successor"
        assert other.uids == ["first"]
        out.drains.clear()
        await out.sender.close()


@pytest.mark.parametrize("left", ["?", "{first} {second}"])
async def test_doubts_are_handed_on_until_they_are_read(out: Outgoing, left: str) -> None:
    """A drainer that ends before it has read everything passes on its predecessor's doubts."""
    first, second = (out.put(8, uid) for uid in ("first", "second"))
    left = left.format(first=first, second=second)
    out.client.set(keys.left(0), left)
    await out.start(1)

    async def drain(read: list[str], doubtful: list[str]) -> str:
        lease = Lease(out.sender.pipe, 0)
        assert await lease.take()
        assert all(lease.doubts(entry.encode()) for entry in read)
        read_up_to = (read or ["0-0"])[-1].encode()
        await lease.release([entry.encode() for entry in doubtful], read_up_to)
        return out.client.get(keys.left(0)).decode()

    assert set((await drain([], [])).split()) == set(left.split())
    assert await drain([first], []) == (left if left == "?" else second)
    out.client.set(keys.left(0), left)
    assert await drain([first, second], [second]) == second
    assert await drain([second], []) == ""


async def test_with_too_many_doubts_everything_is_doubtful(out: Outgoing) -> None:
    await out.start(1)
    lease = Lease(out.sender.pipe, 0)
    assert await lease.take()
    await lease.release([b"1-%d" % number for number in range(MAX_DOUBTFUL + 1)], b"2-0")
    assert out.client.get(keys.left(0)) == UNKNOWN
    assert not out.client.exists(keys.lease(0)), "the successor need not wait"


async def test_a_process_that_stops_takes_no_lease(out: Outgoing) -> None:
    out.put(8)
    out.client.set(keys.left(0), "?")
    await out.start(1)
    out.leave = True
    assert await out.sender.drain(0), "there is more for a successor"
    assert out.client.get(keys.left(0)) == b"?"
    assert not out.client.exists(keys.lease(0))

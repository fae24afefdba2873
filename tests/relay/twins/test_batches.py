"""`relay.twins.batches`: which look-ups are served in one batch, and when."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from relay.twins import bounds
from relay.twins.batches import Batches, Flight
from tests.relay.twins.sources import record


class Served:
    """Batches whose service waits for `open`, and the twins of each batch."""

    def __init__(self) -> None:
        self.batches = Batches(self._serve)
        self.served: list[list[int]] = []
        self.open = asyncio.Event()
        self.open.set()
        self._begun = asyncio.Event()

    def put(self, *twins: int) -> list[Flight]:
        """Request look-ups of twins, and return their flights."""
        loop = asyncio.get_running_loop()
        flights = [loop.create_future() for _ in twins]
        for twin, flight in zip(twins, flights, strict=True):
            self.batches.put(twin, flight)
        return flights

    async def begun(self, count: int) -> None:
        """Wait until `count` batches have begun."""
        async with asyncio.timeout(10):
            while len(self.served) < count:
                self._begun.clear()
                await self._begun.wait()

    async def _serve(self, batch: dict[int, Flight]) -> None:
        self.served.append(list(batch))
        self._begun.set()
        await self.open.wait()
        for twin, flight in batch.items():
            flight.set_result(record(twin))


@pytest.fixture
async def service() -> AsyncIterator[Served]:
    served = Served()
    yield served
    await served.batches.close()


async def test_look_ups_of_one_turn_go_together_at_once(
    service: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "GATHER_S", 60.0)
    async with asyncio.timeout(10):
        await asyncio.gather(*service.put(1, 2, 3))
    assert service.served == [[1, 2, 3]]


async def test_look_ups_of_a_rush_go_together(
    service: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "GATHER_S", 0.05)
    await asyncio.gather(*service.put(1))
    waiting = service.put(2)
    await asyncio.sleep(0)
    waiting += service.put(3, 4)
    await asyncio.gather(*waiting)
    assert service.served == [[1], [2, 3, 4]]


async def test_those_behind_a_quick_batch_go_together(service: Served) -> None:
    service.open.clear()
    waiting = service.put(1)
    await service.begun(1)
    waiting += service.put(*range(2, 10))
    service.open.set()
    await asyncio.gather(*waiting)
    assert service.served == [[1], list(range(2, 10))]


async def test_a_whole_batch_does_not_wait_for_more(
    service: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "GATHER_S", 60.0)
    async with asyncio.timeout(10):
        await asyncio.gather(*service.put(*range(2 * bounds.MAX_FETCH)))
    assert [len(batch) for batch in service.served] == [bounds.MAX_FETCH] * 2


async def test_a_slow_batch_does_not_hold_up_later_ones(service: Served) -> None:
    service.open.clear()
    waiting = service.put(1)
    await service.begun(1)
    waiting += service.put(2, 3)
    await service.begun(2)
    # Once the maximum number of batches runs, further look-ups wait and form one batch.
    for twin in range(4, bounds.MAX_PARALLEL_FETCHES + 2):
        waiting += service.put(twin)
        await service.begun(twin - 1)
    waiting += service.put(6, 7, 8, 9)
    assert service.batches._timer is None, "the end of a batch begins the next one"
    assert len(service.served) == bounds.MAX_PARALLEL_FETCHES
    service.open.set()
    await asyncio.gather(*waiting)
    assert service.served == [[1], [2, 3], [4], [5], [6, 7, 8, 9]]


async def test_close_begins_no_batch(service: Served) -> None:
    service.open.clear()
    service.put(1)
    await service.begun(1)
    service.put(2)
    timer = service.batches._timer
    await service.batches.close()
    assert timer is not None and timer.cancelled()
    assert service.served == [[1]]
    assert list(service.batches.waiting) == [2]

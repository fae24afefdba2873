"""The task that drains a shard, and how it starts its successor."""

from __future__ import annotations

import asyncio

import pytest

from relay.federation import drainer as drainers
from relay.federation import draining, tasks
from relay.ops import background
from tests.relay.federation.conftest import Outgoing
from tests.support.partner_server import partner
from tests.support.waiting import eventually


@pytest.fixture
def refused(out: Outgoing, monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, ...]]:
    """Refuse all tasks, as if Redis had no memory for them, and return those that were refused."""
    refused: list[tuple[object, ...]] = []

    def start(*task: object) -> bool:
        refused.append(task)
        return False

    monkeypatch.setattr(background, "start", start)
    monkeypatch.setattr(draining, "LIFE_S", 0.1)
    monkeypatch.setattr(drainers, "open_source", lambda config: out.twins)
    of_the_test = drainers.Drainer(lambda: out.options, background.stopping.is_set)
    monkeypatch.setattr(tasks, "drainer", of_the_test)
    return refused


async def test_it_goes_on_where_no_successor_can_be_started(
    out: Outgoing, refused: list[tuple[object, ...]]
) -> None:
    """A drainer without a successor continues.

    The outbox itself may be what fills Redis, and then only a drainer can make room.
    """
    async with partner() as other:
        other.status = lambda envelope: 503
        out.put(out.twin(9, other.domain), "waits")
        task = asyncio.create_task(asyncio.to_thread(tasks.deliver, 1))
        await eventually(lambda: len(refused) >= 2)
        other.status = lambda envelope: 202
        await eventually(lambda: other.uids == ["waits"])
        await task
    assert out.empty()
    assert set(refused) == {("federation.deliver", 1)}


async def test_it_ends_with_its_process(
    out: Outgoing, refused: list[tuple[object, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with partner() as other:
        other.status = lambda envelope: 503
        out.put(out.twin(9, other.domain), "waits")
        task = asyncio.create_task(asyncio.to_thread(tasks.deliver, 1))
        await eventually(lambda: other.messages)
        background.stopping.set()
        try:
            await task
        finally:
            background.stopping.clear()
    assert not out.empty()

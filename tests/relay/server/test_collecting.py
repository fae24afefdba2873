"""Which objects the garbage collector does not examine."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator, Iterator

import pytest

from relay.server.collecting import RUSH, TRUSTED, SessionFreezer


class Process:
    """A process that opens sessions, which are lists, and may leave reference cycles."""

    def __init__(self) -> None:
        self.opened = 0
        self.sessions: list[list[int]] = []

    def open(self, count: int) -> None:
        self.opened += count
        self.sessions += [[] for _ in range(count)]

    def leave_a_cycle(self) -> None:
        cycle: list[object] = []
        cycle.append(cycle)

    @property
    def looked_at(self) -> bool:
        """Whether the next collections examine the newest session."""
        return any(each is self.sessions[-1] for each in gc.get_objects())


@pytest.fixture
def process() -> Iterator[Process]:
    gc.collect()
    gc.disable()
    yield Process()
    gc.enable()
    gc.unfreeze()


@pytest.fixture
async def freezer(process: Process) -> AsyncIterator[SessionFreezer]:
    freezer = SessionFreezer(lambda: process.opened)
    yield freezer
    freezer.stop()


async def test_a_rush_is_looked_through_once(process: Process, freezer: SessionFreezer) -> None:
    process.open(RUSH)
    freezer.look()
    assert process.looked_at, "no collection has found that nothing here makes cycles"
    gc.collect(0)
    assert not process.looked_at
    for _ in range(TRUSTED):
        process.open(RUSH)
        assert process.looked_at
        freezer.look()
        assert not process.looked_at
    process.open(RUSH)
    freezer.look()
    assert process.looked_at, "it is time for a look"


async def test_some_sessions_are_no_rush(process: Process, freezer: SessionFreezer) -> None:
    process.open(RUSH - 1)
    gc.collect(0)
    assert process.looked_at
    process.open(1)
    gc.collect(0)
    assert not process.looked_at
    process.open(RUSH - 1)
    freezer.look()
    assert process.looked_at


async def test_where_cycles_end_each_rush_is_looked_through(
    process: Process, freezer: SessionFreezer
) -> None:
    process.open(RUSH)
    process.leave_a_cycle()
    gc.collect(0)
    process.open(RUSH)
    freezer.look()
    assert process.looked_at


async def test_one_that_has_stopped_freezes_nothing(process: Process) -> None:
    freezer = SessionFreezer(lambda: process.opened)
    freezer.stop()
    process.open(RUSH)
    gc.collect(0)
    assert process.looked_at

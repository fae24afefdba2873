"""`relay.federation.shard` with a very large number of twins at once."""

from __future__ import annotations

import time

from relay.federation.lane import Entry, Stage
from relay.federation.shard import MAX_LANES, Shard
from tests.relay.federation.conftest import Outgoing


async def test_many_twins_whose_messages_wait_cost_no_more_each(out: Outgoing) -> None:
    """Time per twin does not grow when a relay is unavailable and its twins exceed `MAX_LANES`."""
    await out.start(1)
    shard = Shard(out.sender, 0)
    started = time.monotonic()
    for twin in range(1, 3 * MAX_LANES):
        lane = shard._new_lane(twin)
        lane.entries.append(Entry(b"1-1", 0.0, 1e12, b"x", "1", "away.example", False))
        lane.stage = Stage.WAITING
    # Searching all lanes for each new lane would take minutes.
    assert time.monotonic() - started < 10
    assert len(shard.lanes) == 3 * MAX_LANES - 1
    for lane in shard.lanes.values():
        lane.entries.clear()
        lane.stage = Stage.IDLE
    while len(shard.lanes) >= MAX_LANES:
        shard._new_lane(len(shard.lanes) + 4 * MAX_LANES)

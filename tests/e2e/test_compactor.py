"""The compactor beside a real relay: all records reach the lake, whichever process is killed."""

from __future__ import annotations

import os
import signal

from relay.analytics import compactor_main, gaps
from relay.analytics.gaps import Why
from relay.analytics.lake import Lake
from relay.analytics.places import DRAFT
from relay.analytics.segments import OPEN_SUFFIX
from tests.relay.analytics import segment_files as made
from tests.support.children import children
from tests.support.relay_process import RelayProcess
from tests.support.rmb_client import session
from tests.support.waiting import eventually
from tests.support.world import fresh_twins

RECORD = {"analytics.record": "1", "analytics.flush_ms": "20", "analytics.segment_s": "0.2"}


def _compactor(relay: RelayProcess) -> int:
    """Return the process id of the relay's compactor, or 0 if it does not run."""
    found = children(compactor_main.__name__, of=relay.pid)
    return found[0].pid if found else 0


async def _talk(relay: RelayProcess, count: int) -> None:
    one, two = fresh_twins(2)
    async with session(relay.url, one) as here, session(relay.url, two) as there:
        for _ in range(count):
            await here.request(there.key)
        await there.receive_many(count)


async def test_recorded_events_come_into_the_lake_whatever_is_killed(start_relay) -> None:
    relay = start_relay(settings=RECORD)
    lake = Lake(relay.folder / "data" / "analytics")

    assert f"events    recorded in {lake.root}, kept for 400 days" in relay.log()

    def delivered() -> int:
        return sum(row["kind"] == "delivered" for row in made.rows(lake))

    await _talk(relay, 10)
    await eventually(lambda: delivered() == 10, what="the first messages in the lake")
    waiting = await eventually(
        lambda: [name for name in relay.metrics() if name.startswith("relay_analytics_waiting_")],
        what="the compactor's word on what it leaves",
    )
    assert len(waiting) == 2, "age and size, of one machine"

    first = await eventually(lambda: _compactor(relay))
    os.kill(first, signal.SIGKILL)
    await _talk(relay, 10)
    await eventually(lambda: delivered() == 20, what="messages of a time without a compactor")
    assert _compactor(relay) != first

    await eventually(lambda: list(lake.segments.glob(f"*{OPEN_SUFFIX}")))
    (worker,) = relay.worker_pids().values()
    os.kill(worker, signal.SIGKILL)
    killed = await eventually(lambda: gaps.read(lake.root), what="the gap of a killed worker")
    # Two gaps, if the worker was killed while it moved from one segment to the next.
    assert {gap.why for gap in killed} == {Why.KILLED}
    await eventually(lambda: worker not in relay.worker_pids().values() and relay.worker_pids())
    await _talk(relay, 10)

    assert relay.stop() == 0
    assert list(lake.segments.iterdir()) == []
    assert list(lake.events.rglob(f"{DRAFT}*")) == []
    rows = made.rows(lake)
    assert delivered() == 30
    assert {row["uid"] for row in rows if row["kind"] == "delivered"} <= {
        row["uid"] for row in rows if row["kind"] == "accepted"
    }
    assert {gap.why for gap in gaps.read(lake.root)} == {Why.KILLED}

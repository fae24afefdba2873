"""Counts of the events that drainers record for analytics.

The metrics include all events, each once, also after a restart.
"""

from __future__ import annotations

import time
from pathlib import Path

from relay.analytics.drainer_events import DrainerEvents
from relay.analytics.journal import Journal, Rhythm
from relay.analytics.places import Places
from relay.analytics.records import Kind
from relay.analytics.writer import BUFFER_RECORDS, MAX_BUFFERS, SegmentWriter
from relay.federation import figures
from tests.relay.federation.conftest import Outgoing
from tests.support.partner_server import partner
from tests.support.waiting import eventually

WRITTEN = 'relay_analytics_events_total{kind="federated_out"}'
PRESSURE = 'relay_analytics_lost_total{reason="pressure"}'
SELDOM = Rhythm(flush_s=3600)
"""A rhythm that writes only when the drainer ends, after it has reported all earlier events."""


def journal(folder: Path, rhythm: Rhythm) -> Journal:
    return Journal(SegmentWriter(Places(folder), "a.example", "federation-1"), time.time, rhythm)


async def test_what_drainers_wrote_and_lost(out: Outgoing, tmp_path: Path) -> None:
    async with partner(offers=True) as other:
        twin = out.twin(100, other.domain)
        out.put(twin, "first")
        await out.start(events=DrainerEvents(journal(tmp_path, Rhythm(flush_s=0.01))))
        await eventually(lambda: figures.read(out.client).get(WRITTEN) == 1)
        await out.stop()
        found = figures.read(out.client)
        assert found[WRITTEN] == 1 and found[PRESSURE] == 0

        pressed = journal(tmp_path, SELDOM)
        for number in range((MAX_BUFFERS + 1) * BUFFER_RECORDS):  # no thread writes yet
            pressed.put(Kind.DROPPED, number, number, 1, 2)
        out.put(twin, "second")
        await out.start(events=DrainerEvents(pressed))
        await eventually(lambda: len(other.taken) == 2)
        await eventually(out.empty)
        await out.stop()
        found = figures.read(out.client)
        assert found[WRITTEN] == 2
        assert found[PRESSURE] == BUFFER_RECORDS
        assert found['relay_analytics_events_total{kind="dropped"}'] == (
            MAX_BUFFERS * BUFFER_RECORDS
        )

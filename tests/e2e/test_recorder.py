"""What real relays record of real traffic: each message comes to an end that is on record."""

from __future__ import annotations

import time
from pathlib import Path

from proto.rmb.stamp import deadline
from relay.analytics import gaps
from tests.support.identities import TEST_DOMAIN
from tests.support.recorded import counted, of_message, rows, unaccounted
from tests.support.relay_process import RelayProcess, eventually
from tests.support.rmb_client import session
from tests.support.world import fresh_twins

RECORD = {"analytics.record": "1", "analytics.flush_ms": "50"}
STORED_WITHIN_US = 1_000_000
"""The clock of Redis says when it took a message, a commit after the relay did."""


def _lake(relay: RelayProcess) -> Path:
    return relay.folder / "data" / "analytics"


async def test_a_relays_traffic_leaves_the_right_rows(start_relay) -> None:
    relay = start_relay(settings={**RECORD, "limits.count": "60", "limits.size": "100000000"})
    one, two, three = fresh_twins(3)
    began_us = time.time_ns() // 1000
    async with session(relay.url, one, "left") as here:
        async with session(relay.url, two) as there:
            asked = [await here.request(there.key, bytes(1000)) for _ in range(20)]
            for request in await there.receive_many(20):
                await there.respond(request, b"fine")
            await here.receive_many(20)
            delivered = await here.request(there.key, uid=asked[0].uid)  # the same uid once more
            await there.receive()
            unknown = await here.request((4_000_000_000, None))
            assert (await here.receive()).HasField("error")
        waited = await here.request((three.id, "phone"), b"you are away")
        expired = await here.request((three.id, "phone"), b"too late", expiration=1)
        await here.barrier()
        late = deadline(expired.timestamp, expired.expiration)
        await eventually(lambda: time.time() >= late, what="its deadline")
        async with session(relay.url, three, "phone") as absent:
            await absent.receive()
            await here.receive()
        flood = [await here.request((two.id, "x")) for _ in range(60)]
        while (await here.receive()).uid != flood[-1].uid:
            pass  # the notice of another one that was refused
    assert relay.stop() == 0
    found = rows(_lake(relay))
    assert all(began_us <= row.at_us <= time.time_ns() // 1000 for row in found)
    assert {row.relay for row in found} == {TEST_DOMAIN}
    (taken, given) = of_message(found, asked[5])
    assert (taken.kind, given.kind) == ("accepted", "delivered")
    size = len(asked[5].SerializeToString())
    for row in (taken, given):
        assert (row.source, row.destination, row.session) == (one.id, two.id, "left")
        assert (row.size_bytes, row.reason, row.remote) == (size, "none", None)
    assert taken.latency_us is None
    assert given.latency_us is not None and given.latency_us == given.at_us - taken.at_us >= 0
    assert [row.kind for row in of_message(found, delivered)] == ["accepted", "delivered"] * 2
    answers = [row for row in found if row.source == two.id and row.kind == "delivered"]
    assert len(answers) == 20 and {row.destination for row in answers} == {one.id}
    assert not {row.uid for row in answers} & {row.uid for row in found if row.source == one.id}
    assert [row.reason for row in of_message(found, unknown)] == ["unknown_twin"]
    came, stayed, left = of_message(found, waited)
    assert (came.kind, stayed.kind, left.kind) == ("accepted", "queued", "delivered")
    assert left.latency_us is not None
    assert abs(left.latency_us - (left.at_us - came.at_us)) < STORED_WITHIN_US
    ends = of_message(found, expired)
    assert [(row.kind, row.reason) for row in ends][-1] == ("dropped", "expired")
    refused = [row for each in flood for row in of_message(found, each) if row.kind == "dropped"]
    assert {row.reason for row in refused} == {"limit_count"}
    totals = counted(found)
    assert totals["limit_hit limit_count"] == totals["dropped limit_count"] == len(refused) > 0
    opened = [row for row in found if row.kind == "session_open"]
    closed = {row.uid: row for row in found if row.kind == "session_close"}
    assert len({row.uid for row in opened}) == len(opened) == len(closed) == 3
    for row in opened:
        end = closed[row.uid]
        assert (end.source, end.session, end.size_bytes) == (row.source, row.session, 0)
        assert end.latency_us == end.at_us - row.at_us > 0
        assert end.reason == "client_close"
    assert gaps.read(_lake(relay)) == []
    waiting = {row.uid for each in flood for row in of_message(found, each)}
    assert set(unaccounted(found)) <= waiting, "all but what still waits in a queue"

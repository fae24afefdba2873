"""Records of real relays for real traffic: each message has a final state on record."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from proto.rmb import types_pb2 as pb
from proto.rmb.stamp import deadline
from proto.sbd.frames import path_of_key
from relay.analytics import gaps
from relay.analytics.lake import Lake
from relay.queues import keys
from relay.trace.orders import Kind
from tests.e2e.test_sbd import fresh, on_both_workers
from tests.relay.analytics import segment_files as made
from tests.support.federated import PUBLIC_ONLY, FederatedRelay, World
from tests.support.federation_client import federation, signed
from tests.support.identities import TEST_DOMAIN
from tests.support.partner import answer, in_turn, partner
from tests.support.recorded import counted, of_message, rows, unaccounted
from tests.support.redis_servers import start_valkey
from tests.support.relay_process import RelayProcess, run_command
from tests.support.rmb_client import session, signing_session
from tests.support.tracing import publish, stages, traced, until
from tests.support.waiting import eventually, fresh_window
from tests.support.world import fresh_twins

RECORD = {"analytics.record": "1", "analytics.flush_ms": "50"}
STORED_WITHIN_US = 1_000_000
"""Difference allowed between latency and record times, in microseconds.

Redis's clock says when it stored a message, which is a commit later than the relay's record."""


def _lake(relay: RelayProcess) -> Path:
    return relay.folder / "data" / "analytics"


async def test_a_relays_traffic_leaves_the_right_rows(start_relay) -> None:
    relay = start_relay(settings={**RECORD, "limits.count": "60", "limits.size": "100000000"})
    one, two, three = fresh_twins(3)
    began_us = time.time_ns() // 1000
    order = publish(relay.redis, Kind.TWIN, str(three.id))  # for trace and recorder
    await traced(relay)
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
        expired = await here.request((three.id, "phone"), b"too late", expiration=2)
        await here.barrier()
        late = deadline(expired.timestamp, expired.expiration)
        await eventually(lambda: time.time() >= late, what="its deadline")
        async with session(relay.url, three, "phone") as absent:
            await absent.receive()
            await here.receive()
            followed = await until(relay.redis, order, "notified")
        await fresh_window(10)
        flood = [await here.request((two.id, "x")) for _ in range(61)]
        while (await here.receive()).uid != flood[-1].uid:
            pass  # the notice of another one that was refused
    assert relay.stop() == 0
    assert {"accepted", "queued", "delivered", "expired"} <= set(stages(followed))
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


async def test_each_packet_of_sbd_is_on_record_once(start_relay) -> None:
    settings = {**RECORD, "sbd.enabled": "true", "sbd.limit_kbit_per_s": "0"}
    relay = start_relay(processes=2, settings=settings)
    sent: Counter[tuple[str, str, int]] = Counter()
    nobody = fresh().key
    async with on_both_workers(relay) as clients, session(relay.url, fresh_twins(1)[0]) as twin:
        await twin.request(twin.key)
        await twin.receive()
        for source, target in itertools.product(clients, [*(each.key for each in clients), nobody]):
            for number in range(3):
                await source.forward(target, bytes(number))
                sent[path_of_key(source.key), path_of_key(target), 32 + number] += 1
        for target in clients:
            for _ in range(3 * len(clients)):
                await target.receive()
        await eventually(lambda: relay.counted("sbd_lost_absent_total") == 3 * len(clients))
        assert relay.counted("sbd_crossed_total") > 0
    assert relay.stop() == 0
    found = [row for row in rows(_lake(relay)) if row.protocol == "sbd"]

    def told(kind: str) -> Counter[tuple[str | None, str | None, int]]:
        return Counter(
            (row.source_key, row.destination_key, row.size_bytes)
            for row in found
            if row.kind == kind
        )

    assert told("accepted") == sent
    lost = {key: count for key, count in sent.items() if key[1] == path_of_key(nobody)}
    assert told("dropped") == lost and told("delivered") == {}
    assert {row.reason for row in found if row.kind == "dropped"} == {"absent"}
    opened, closed = (
        {row.uid: row for row in found if row.kind == kind}
        for kind in ("session_open", "session_close")
    )
    assert opened.keys() == closed.keys()
    keys = {row.source_key for row in opened.values()}
    assert keys == {path_of_key(each.key) for each in clients}
    assert {row.reason for row in closed.values()} == {"client_close"}


@pytest.fixture
def recording(tmp_path: Path, world: World) -> Iterator[FederatedRelay]:
    """Start a relay that records, with drainers of its own."""
    with contextlib.ExitStack() as cleanup:
        server = start_valkey(tmp_path / "redis")
        cleanup.callback(server.remove)
        relay = FederatedRelay(world, PUBLIC_ONLY, tmp_path, server, settings=RECORD)
        cleanup.callback(relay.stop)
        relay.start()
        relay.wait_federating()
        yield relay


async def test_what_goes_to_other_relays_and_comes_from_them(
    recording: FederatedRelay, world: World
) -> None:
    relay = recording
    here, receiver = world.twins(PUBLIC_ONLY, 2)
    there_port, away_port = world.partner_ports(2)
    domain, nobody = f"127.0.0.1:{there_port}", f"127.0.0.1:{away_port}"
    (there,), (away,) = world.twins(domain, 1), world.twins(nobody, 1)
    answers = in_turn(answer(202), answer(503), answer(202), answer(404))
    async with (
        partner(there_port, answers),
        signing_session(relay.url, here, "phone") as client,
        session(relay.url, receiver) as local,
        federation(relay.port) as other,
    ):
        lost = await client.request((away.id, None), expiration=5)
        taken = await client.request((there.id, None), b"taken")
        second = await client.request((there.id, None), b"taken at the second try")
        refused = await client.request((there.id, None), b"refused")
        notices = await client.receive_many(2)
        assert {notice.uid for notice in notices} == {refused.uid, lost.uid}
        brought = signed(there, (receiver.id, None), b"from elsewhere")
        assert (await other.deliver(brought, relay=domain)).status == 202
        await local.receive()
        forged = signed(there, (receiver.id, None), b"of nobody")
        forged.plain = b"of somebody else"
        assert (await other.deliver(forged, relay=domain)).status == 403
    assert relay.stop() == 0
    found = rows(_lake(relay))

    def told(envelope: pb.Envelope) -> list[tuple[str, str, str | None]]:
        return [(row.kind, row.reason, row.remote) for row in of_message(found, envelope)]

    assert told(taken) == [("accepted", "none", None), ("federated_out", "none", domain)]
    assert told(second) == [
        *(("accepted", "none", None), ("federated_out", "remote_5xx", domain)),
        ("federated_out", "none", domain),
    ]
    assert told(refused) == [
        *(("accepted", "none", None), ("federated_out", "remote_4xx", domain)),
        ("dropped", "remote_4xx", None),
    ]
    came, *tries, end = told(lost)
    assert (came[0], end[:2]) == ("accepted", ("dropped", "expired"))
    assert set(tries) == {("federated_out", "remote_timeout", nobody)}
    for row in of_message(found, taken):
        assert (row.source, row.destination, row.session) == (here.id, there.id, "phone")
        assert row.size_bytes == len(taken.SerializeToString())
    assert of_message(found, taken)[1].latency_us > 0
    assert told(brought) == [("federated_in", "none", domain), ("delivered", "none", None)]
    assert told(forged) == [], "nobody says that it was its source"
    assert [(row.source, row.remote) for row in found if row.reason == "bad_signature"] == [
        (0, domain)
    ]
    assert unaccounted(found) == []


async def test_a_worker_that_is_killed_leaves_what_it_had_written(start_relay) -> None:
    relay = start_relay(settings={**RECORD, "analytics.segment_s": "600"})
    one, two = fresh_twins(2)
    lake = _lake(relay)
    async with session(relay.url, one) as here, session(relay.url, two) as there:
        first = [await here.request(there.key) for _ in range(50)]
        await there.receive_many(50)
        await eventually(lambda: counted(rows(lake))["delivered"] == 50)
        killed_us = time.time_ns() // 1000
        (pid,) = relay.worker_pids().values()
        os.kill(pid, signal.SIGKILL)
    gap = (await eventually(lambda: gaps.read(lake), what="the gap"))[0]
    assert (gap.relay, gap.worker, gap.why, gap.lost) == (TEST_DOMAIN, "worker-0", "killed", None)
    assert gap.from_us <= killed_us <= gap.to_us
    assert killed_us - gap.from_us < 10_000_000
    relay.wait_ready()
    async with session(relay.url, one) as here, session(relay.url, two) as there:
        later = [await here.request(there.key) for _ in range(50)]
        await there.receive_many(50)
    assert relay.stop() == 0
    found = rows(lake)
    for envelope in first + later:
        kinds = [row.kind for row in of_message(found, envelope)]
        assert kinds in (["accepted", "delivered"], ["accepted", "queued", "delivered"])
    opened = [row.uid for row in found if row.kind == "session_open"]
    assert len(set(opened)) == len(opened) == 4, "the uids of a worker's sessions are its own"
    closed = [row for row in found if row.kind == "session_close"]
    assert sorted(row.uid for row in closed) == sorted(opened)
    lost = [row.at_us for row in closed if row.reason == "worker_lost"]
    assert len(lost) == 2
    assert all(killed_us - 10_000_000 < at_us <= killed_us for at_us in lost)
    assert gaps.read(lake) == [gap]


@pytest.mark.parametrize("killed", ["worker-0", "worker-0-packer"])
async def test_the_gap_of_a_killed_recorder_tells_what_it_lost(start_relay, killed: str) -> None:
    relay = start_relay(
        settings={**RECORD, "analytics.flush_ms": "1000", "analytics.segment_s": "600"}
    )
    one, two = fresh_twins(2)
    lake = _lake(relay)
    (worker,) = relay.worker_pids().values()
    sent = 0
    async with session(relay.url, one) as here, session(relay.url, two) as there:
        (packer,) = await eventually(lambda: psutil.Process(worker).children(), what="a packer")

        async def send(count: int) -> None:
            nonlocal sent
            for _ in range(count):
                await here.request(there.key)
                await there.receive()
            sent += count

        for _ in range(2):
            before = sent
            while counted(rows(lake))["delivered"] <= before:
                await send(20)
        await send(100)
        os.kill(packer.pid if killed == "worker-0-packer" else worker, signal.SIGKILL)
        await eventually(lambda: gaps.read(lake), what="the gap")
    assert relay.stop() == 0
    (gap,) = gaps.read(lake)
    assert gap.worker == killed and gap.lost is None
    assert gap.estimated is not None and gap.at_most is not None
    found = counted(rows(lake))
    lost = 2 * sent - found["accepted"] - found["delivered"]
    assert 0 < lost <= gap.at_most
    assert gap.estimated > lost / 5, "the rate before, and the last 100 came in one go"
    assert gap.estimated < gap.at_most / 10, "what it wrote before, not what it can hold"


HOUSEKEEPING = """
from relay.ops import housekeeping
from relay.ops.redis_client import client
for _ in range(2):
    client().delete("relay:housekeeping")
    assert housekeeping.run_due()
"""


async def test_sessions_of_a_relay_that_is_killed_end_with_it(start_relay) -> None:
    relay = start_relay(settings={**RECORD, "analytics.segment_s": "0.2"})
    one, two = fresh_twins(2)
    lake = _lake(relay)
    async with session(relay.url, one, "phone"), session(relay.url, two):
        await eventually(
            lambda: [row["kind"] for row in made.rows(Lake(lake))].count("session_open") == 2,
            what="the openings to be out of their segment",
        )
        await eventually(lambda: _rows_of_sessions(relay) == 2, what="the session history")
        (boot_id,) = relay.worker_hashes()
        killed_us = time.time_ns() // 1000
        relay.kill()
    relay.start()
    relay.redis.run("DEL", keys.worker(boot_id))  # as happens after 30 s
    await eventually(lambda: boot_id not in relay.worker_hashes())
    settings = relay.settings | {"relay.domains": TEST_DOMAIN}
    done = run_command(relay.folder, "shell", "-c", HOUSEKEEPING, settings=settings)
    assert done.returncode == 0, done.stderr
    assert relay.stop() == 0
    found = rows(lake)
    opened = {row.uid: row for row in found if row.kind == "session_open"}
    closed = {row.uid: row for row in found if row.kind == "session_close"}
    assert opened.keys() == closed.keys() and len(opened) == 2
    for uid, row in closed.items():
        assert row._replace(kind="session_open")[1:7] == opened[uid][1:7]
        assert row.reason == "worker_lost"
        assert opened[uid].at_us - 1_000_000 <= row.at_us <= killed_us


def _rows_of_sessions(relay: RelayProcess) -> int:
    with contextlib.closing(sqlite3.connect(relay.database_path())) as database:
        (count,) = database.execute("SELECT count(*) FROM relay_sessions_session").fetchone()
    return int(count)


async def test_what_a_full_queue_loses_and_an_operator_deletes(start_relay) -> None:
    relay = start_relay(
        settings={**RECORD, "queue.overflow": "drop_oldest", "queue.max_messages": "20"}
    )
    one, two, three = fresh_twins(3)
    async with session(relay.url, one, "phone") as here:
        for _ in range(5):
            sent = [await here.request((two.id, None)) for _ in range(20)]
            await here.barrier()
        unwanted = [await here.request((three.id, "x"), uid="u" * 250 + str(n)) for n in range(3)]
        await here.barrier()
        async with session(relay.url, two) as there:
            kept = {envelope.uid for envelope in await there.receive_many(20)}
            await there.barrier()
    done = run_command(
        relay.folder, "rmb_queue", "purge", f"{three.id}:x", "--yes", settings=relay.settings
    )
    assert done.returncode == 0, done.stderr
    assert relay.stop() == 0
    found = rows(_lake(relay))
    for envelope in unwanted:
        kinds = [(row.kind, row.reason) for row in of_message(found, envelope)]
        assert kinds == [("accepted", "none"), ("queued", "none"), ("dropped", "purged")]
        assert of_message(found, envelope)[2].session == "phone"
    totals = counted(found)
    assert kept <= {envelope.uid for envelope in sent}
    assert totals["accepted"] == 103
    assert totals["dropped queue_full"] == 100 - totals["delivered"] == 80
    assert unaccounted(found) == []

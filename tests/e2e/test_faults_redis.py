"""Redis killed, paused, full, or cut off under load.

No stored message is lost or duplicated, and the relay recovers by itself.
"""

from __future__ import annotations

import asyncio
import json
import time

import pytest

from tests.support.load import load
from tests.support.redis_servers import can_save, cannot_save, start_redis62, start_valkey
from tests.support.rmb_client import connect, session
from tests.support.tcp_proxy import tcp_proxy
from tests.support.waiting import eventually
from tests.support.world import fresh_twins

PAIRS = 4


BOTH = pytest.mark.parametrize("program", [start_valkey, start_redis62], ids=["valkey", "redis62"])


@BOTH
async def test_redis_killed_and_restarted_under_load(start_server, start_relay, program) -> None:
    """With append-only `always`, every commit survives, and websockets stay open throughout."""
    server = start_server(append_fsync="no", program=program)
    relay = start_relay(server)
    async with load(relay.url) as work:
        work.add_pairs(fresh_twins(2 * PAIRS))
        for _ in range(3):
            await work.run_until(500)
            server.kill()
            await eventually(lambda: relay.get("/ready")[0] == 503, what="/ready to be red")
            server.restart()
            back = time.monotonic()
            await work.run_until(100)
            assert time.monotonic() - back < 3, "the relay was slow to go on"
        await work.finish()
        work.ledger.check()
        assert len(work.ledger.senders) == PAIRS, "a sender lost its connection"
        assert len(work.ledger.receivers) == PAIRS, "a receiver lost its connection"


async def test_redis_paused_for_ten_seconds(start_server, start_relay) -> None:
    server = start_server(append_fsync="no")
    relay = start_relay(server)
    async with load(relay.url) as work, session(relay.url, *fresh_twins(1)) as idle:
        work.add_pairs(fresh_twins(2 * PAIRS))
        await work.run_until(500)
        server.pause()
        try:
            end = time.monotonic() + 10
            while time.monotonic() < end:
                # The websocket layer answers while storage is unavailable.
                await asyncio.wait_for(await idle.websocket.ping(), 2)
                await asyncio.sleep(0.25)
        finally:
            server.resume()
        back = time.monotonic()
        await work.run_until(1)
        assert work.last_receipt - back < 1.0
        await work.run_until(500)
        await idle.barrier()
        await work.finish()
        work.ledger.check()
        assert len(work.ledger.receivers) == PAIRS


@BOTH
async def test_out_of_memory_then_freed_by_the_readers(start_server, start_relay, program) -> None:
    server = start_server("--maxmemory", "24mb", append_fsync="no", program=program)
    relay = start_relay(server)
    twins = fresh_twins(8)
    sender, absent, late = twins[0], twins[1:7], twins[7]
    async with load(relay.url, window=4, size_bytes=32 * 1024) as work:
        work.add_sender(sender, [(twin.id, None) for twin in absent])
        await eventually(
            lambda: any(
                "storage is full" in text for page in work.ledger.senders for text in page.refusals
            ),
        )
        await eventually(lambda: relay.get("/ready")[0] == 503, what="/ready to be red")
        # Signing in works (the claim enters the session), and the readers free memory.
        async with session(relay.url, late):
            await eventually(lambda: server.run("HEXISTS", "relay:sessions", str(late.id)))
        for twin in absent:
            work.add_receiver(twin)
        refused = sum(len(page.refused) for page in work.ledger.senders)
        await eventually(lambda: relay.get("/ready")[0] == 200, what="/ready green")
        before = work.received
        await work.run_until(200)
        assert work.received > before and refused
        await work.finish()
        work.ledger.check()
        await eventually(lambda: relay.counted("relay_messages_total", reason="storage_full"))


async def test_a_full_storage_refuses_nobody_after_it_was_freed(start_server, start_relay) -> None:
    server = start_server(append_fsync="no")
    relay = start_relay(server)
    one, two = fresh_twins(2)
    async with session(relay.url, one) as sender:
        used = server.run("INFO", "memory")["used_memory"]
        server.run("CONFIG", "SET", "maxmemory", used + 200_000)
        told = False
        async with asyncio.timeout(60):
            while not told:
                await sender.request((two.id, None), bytes(8192))
                await sender.barrier()
                told = not sender.inbox.empty()
        assert (await sender.receive()).error.message == "relay storage is full"
        server.run("CONFIG", "SET", "maxmemory", 0)
        await eventually(lambda: relay.get("/ready")[0] == 200)
        while not sender.inbox.empty():
            await sender.receive()
        await sender.request((two.id, None), b"fits again")
        await sender.barrier()
        assert sender.inbox.empty()


async def test_a_redis_that_cannot_save(start_server, start_relay) -> None:
    """While Redis answers `MISCONF` to writes, as with a full disk, senders get errors.

    Websockets stay open. A write that a replica refuses waits instead: a server is a replica only
    while roles change.
    """
    server = start_server()
    relay = start_relay(server)
    one, two, late = fresh_twins(3)
    async with session(relay.url, one) as sender, session(relay.url, two) as receiver:
        await sender.request(receiver.key, b"before")
        await receiver.receive()
        cannot_save(server)
        await sender.request(receiver.key, b"refused")
        assert (await sender.receive()).error.message == "relay storage is full"
        await eventually(lambda: relay.get("/ready")[0] == 503, what="/ready to be red")
        can_save(server)
        await eventually(lambda: relay.get("/ready")[0] == 200, what="/ready green")
        while not sender.inbox.empty():
            await sender.receive()
        async with session(relay.url, late) as another:
            await another.request(receiver.key, b"after")
            await sender.request(receiver.key, b"after")
            plain = {(await receiver.receive()).plain for _ in range(2)}
        assert plain == {b"after"}
        server.run("REPLICAOF", "127.0.0.1", 1)
        await sender.request(receiver.key, b"waits")
        await eventually(lambda: "refuses for now: READONLY" in relay.log())
        server.run("REPLICAOF", "NO", "ONE")
        assert (await receiver.receive()).plain == b"waits"
        assert sender.inbox.empty()
    assert relay.log().count("refuses for now") == 1
    assert "MISCONF" in relay.log() and "Traceback" not in relay.log()
    assert relay.log().count("refuses to store") == 1


async def test_a_master_that_has_become_a_replica_is_left(start_server, start_relay) -> None:
    """The relay leaves a former master that has become a read-only replica, and reconnects.

    The host name leads to the new master by then.
    """
    old = start_server(append_fsync="no")
    new = start_server("--replicaof", "127.0.0.1", str(old.port))
    await eventually(lambda: new.run("INFO", "replication")["master_link_status"] == "up")
    one, two, three = fresh_twins(3)
    async with tcp_proxy(("127.0.0.1", old.port)) as proxy:
        relay = await asyncio.to_thread(
            start_relay, old, redis_url=f"redis://127.0.0.1:{proxy.port}/0"
        )
        elsewhere = await asyncio.to_thread(start_relay, new, wait=False)
        async with session(relay.url, one) as sender, session(relay.url, two) as receiver:
            await sender.request(receiver.key, b"before")
            assert (await receiver.receive()).plain == b"before"
            await eventually(lambda: new.run("XLEN", f"stream:{two.id}") == 0)
            proxy.target = ("127.0.0.1", new.port)
            new.run("REPLICAOF", "NO", "ONE")
            old.run("REPLICAOF", "127.0.0.1", new.port)
            await sender.request(receiver.key, b"after")
            assert (await receiver.receive(20)).plain == b"after"
            await eventually(lambda: relay.get("/ready")[0] == 200)
            # Wake-ups from another worker arrive from the new master, too.
            old.run("REPLICAOF", "127.0.0.1", 1)
            await eventually(lambda: elsewhere.get("/ready")[0] == 200)
            await eventually(lambda: len(new.run("PUBSUB", "CHANNELS", f"*{two.id}")) > 0)
            async with session(elsewhere.url, three) as another:
                await another.request(receiver.key, b"from elsewhere")
                assert (await receiver.receive(20)).plain == b"from elsewhere"
        await asyncio.to_thread(relay.stop)
    assert "Traceback" not in relay.log()


@BOTH
async def test_queues_are_delivered_while_the_disk_is_full(
    start_server, start_relay, program
) -> None:
    """Queues are delivered while Redis refuses all writes: claims, heartbeats, and removals."""
    server = start_server(program=program)
    relay = start_relay(server, processes=2, operator_site=True)
    one, two = fresh_twins(2)
    async with session(relay.url, one) as sender:
        for number in range(30):
            await sender.request((two.id, None), b"%d" % number)
        await sender.barrier()
    cannot_save(server)
    told = "Redis cannot write to its disk, which may be full"
    wanted = {b"%d" % number for number in range(30)}
    for _ in range(2):  # received messages cannot be removed, so they come again
        async with session(relay.url, two) as receiver:
            assert {(await receiver.receive()).plain for _ in range(30)} == wanted
    await eventually(lambda: json.loads(relay.get("/ready")[1])["reasons"] == [told])
    assert told in json.loads(relay.get("/ready", admin=True)[1])["reasons"]
    async with session(relay.url, two) as receiver:
        assert {(await receiver.receive()).plain for _ in range(30)} == wanted
        newcomer = await connect(relay.url, two)
        assert (await receiver.closed())[0] == 4001, "the claim counts, though it is not entered"
        assert {(await newcomer.receive()).plain for _ in range(30)} == wanted
        can_save(server)
        await eventually(lambda: relay.get("/ready")[0] == 200, what="/ready green")
        await eventually(lambda: server.run("XLEN", f"stream:{two.id}") == 0)
        await eventually(lambda: server.run("HEXISTS", "relay:sessions", str(two.id)))
        async with session(relay.url, one) as sender:
            await sender.request((two.id, None), b"after")
            assert (await newcomer.receive()).plain == b"after"
        await newcomer.abort()
    assert relay.log().count("refuses to store") <= 2 * 2 and "is gone" not in relay.log()
    assert "redis refused the upkeep" not in relay.log() and "Traceback" not in relay.log()


async def test_a_redis_that_loads_its_file(start_server, start_relay) -> None:
    """No message is lost while a restarted Redis loads its file.

    It listens, and answers `LOADING` to all but a few commands, for a second or two.
    """
    server = start_server(
        *("--key-load-delay", "400", "--loading-process-events-interval-bytes", "1024"),
        append_fsync="no",
    )
    with server.client() as client, client.pipeline(transaction=False) as pipe:
        for number in range(4000):
            pipe.set(f"test:{number}", bytes(64))
        pipe.execute()
    relay = start_relay(server)
    async with load(relay.url) as work:
        work.add_pairs(fresh_twins(2 * PAIRS))
        await work.run_until(500)
        server.kill()
        await asyncio.to_thread(server.restart)
        await work.run_until(500)
        await work.finish()
        work.ledger.check()
        assert len(work.ledger.senders) == len(work.ledger.receivers) == PAIRS
    assert "LOADING" in relay.log() and "Traceback" not in relay.log()


async def test_an_evicting_redis_is_not_ready(start_server, start_relay) -> None:
    """A relay is not ready on a Redis that evicts keys: it would silently lose messages."""
    server = start_server("--maxmemory", "50mb", "--maxmemory-policy", "allkeys-lru")
    relay = start_relay(server, wait=False)

    def says_why() -> bool:
        try:
            status, text = relay.get("/ready")
        except OSError:
            return False  # not listening yet
        return status == 503 and "maxmemory-policy" in text

    await eventually(says_why)
    server.run("CONFIG", "SET", "maxmemory-policy", "noeviction")
    await eventually(lambda: relay.get("/ready")[0] == 200)


async def test_the_pub_sub_connections_cut_under_load(start_server, start_relay) -> None:
    """Wake-ups are lost with the connections; the messages they announced are read all the same."""
    server = start_server(append_fsync="no")
    relays = [start_relay(server), start_relay(server)]
    # Senders at one worker, receivers at the other: every message needs a wake.
    async with load(relays[0].url) as work:
        twins = fresh_twins(2 * PAIRS)
        receivers = [await _receive_at(work, relays[1].url, twin) for twin in twins[:PAIRS]]
        for sender, key in zip(twins[PAIRS:], receivers, strict=True):
            work.add_sender(sender, [key])
        await work.run_until(300)
        for _ in range(10):
            server.run("CLIENT", "KILL", "TYPE", "pubsub")
            await work.run_until(100)
        await work.finish()
        work.ledger.check()
        assert len(work.ledger.receivers) == PAIRS


async def _receive_at(work, url, twin):
    """Start a receiver at a relay other than the load's."""
    own = work.url
    work.url = lambda: url
    key = work.add_receiver(twin)
    while key not in work.clients:
        await asyncio.sleep(0.005)
    work.url = own
    return key


@BOTH
async def test_both_connections_of_every_worker_cut_under_load(
    start_server, start_relay, program
) -> None:
    server = start_server(append_fsync="no", program=program)
    relay = start_relay(server, processes=2)
    async with load(relay.url) as work:
        work.add_pairs(fresh_twins(2 * PAIRS))
        await work.run_until(300)
        for _ in range(10):
            server.run("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            server.run("CLIENT", "KILL", "TYPE", "pubsub")
            await work.run_until(100)
        await work.finish()
        # A batch unanswered at the cut may leave duplicates; the relay checked whether the batches
        # were applied.
        work.ledger.check(allow_duplicates=True)


async def test_redis_restarted_empty_loses_queues_but_not_the_relay(
    start_server, start_relay
) -> None:
    """Without persistence the queues are lost with Redis; sessions stay and messages flow again."""
    server = start_server()
    relay = start_relay(server)
    one, two = fresh_twins(2)
    async with session(relay.url, one) as sender, session(relay.url, two) as receiver:
        await sender.request(receiver.key, b"before")
        await receiver.receive()
        server.kill()
        server.restart()
        await sender.request(receiver.key, b"after")
        assert (await receiver.receive(15)).plain == b"after"
        await eventually(lambda: server.run("HEXISTS", "relay:sessions", str(two.id)))
        newcomer = await connect(relay.url, two)
        assert (await receiver.closed())[0] == 4001
        await sender.request(receiver.key, b"to the newcomer")
        assert (await newcomer.receive()).plain == b"to the newcomer"
        await newcomer.abort()

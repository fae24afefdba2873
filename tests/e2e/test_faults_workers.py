"""Workers killed, restarted one after another, drained; newcomers at two workers at once."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from contextlib import AsyncExitStack, closing

import pytest

from proto.rmb import types_pb2 as pb
from tests.support.identities import Twin
from tests.support.ledger import parse
from tests.support.load import Load, load
from tests.support.redis_servers import RedisServer
from tests.support.relay_process import RelayProcess, directory, heartbeats, published
from tests.support.rmb_client import RmbClient, connect, session
from tests.support.waiting import eventually
from tests.support.world import fresh_twins

PAIRS = 4
NEWCOMER_ROUNDS = 1000


async def _is_back(relay: RelayProcess, killed: int) -> None:
    def replaced() -> bool:
        pids = relay.worker_pids().values()
        return killed not in pids and len(pids) == relay.processes

    await eventually(replaced, what="the killed worker to be replaced")


async def test_a_worker_killed_under_load(start_server, start_relay) -> None:
    """No message confirmed by a pong is lost; only messages not yet removed may come twice."""
    server = start_server(append_fsync="no")
    relay = start_relay(server, processes=2)
    held: set[tuple[int, int]] = set()
    async with load(relay.url) as work:
        work.add_pairs(fresh_twins(2 * PAIRS))
        for _ in range(4):
            await work.run_until(300)
            victim = random.choice(list(relay.worker_pids().values()))
            # Stopped first: only what Redis holds at this moment may be delivered again.
            os.kill(victim, signal.SIGSTOP)
            held |= _held(server)
            os.kill(victim, signal.SIGKILL)
            await _is_back(relay, victim)
            await work.run_until(100)
        await work.finish()
        work.ledger.check(allow_duplicates=True)
        again = set(work.ledger.duplicates())
        assert again <= held, f"{len(again - held)} came twice that had been removed"


def _held(server: RedisServer) -> set[tuple[int, int]]:
    """Return the messages of the load that wait in any queue."""
    with closing(server.client()) as client:
        return {
            parse(pb.Envelope.FromString(fields[b"_"]).plain)
            for key in client.scan_iter("stream:*")
            for _, fields in client.xrange(key)
        }


async def test_all_workers_killed_at_once(start_server, start_relay) -> None:
    relay = start_relay(start_server(append_fsync="no"), processes=2)
    async with load(relay.url) as work:
        work.add_pairs(fresh_twins(2 * PAIRS))
        await work.run_until(300)
        for victim in (victims := list(relay.worker_pids().values())):
            os.kill(victim, signal.SIGKILL)
        for victim in victims:
            await _is_back(relay, victim)
        await work.run_until(200)
        await work.finish()
        work.ledger.check(allow_duplicates=True)


async def test_a_rolling_restart_under_load(start_server, start_relay) -> None:
    """A rolling restart loses and duplicates nothing, and one worker always accepts connections."""
    relay = start_relay(
        start_server(append_fsync="no"), processes=2, settings={"relay.drain_s": "1"}
    )
    async with load(relay.url) as work:
        work.add_pairs(fresh_twins(2 * PAIRS))
        await work.run_until(300)
        before = set(relay.worker_pids().values())
        relay.hang_up()
        await eventually(
            lambda: not before & set(relay.worker_pids().values()),
            what="both workers to be replaced",
        )
        await work.run_until(300)
        await work.finish()
        work.ledger.check()


async def test_a_drained_worker_closes_1012_and_its_clients_come_back(relay_pair_own) -> None:
    relay = relay_pair_own
    twins = fresh_twins(12)
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(session(relay.url, twin)) for twin in twins]
        entries = await _entered(relay, twins)
        boot = entries[str(twins[0].id)][1]
        drained = [client for client in clients if entries[str(client.twin.id)][1] == boot]
        others = [client for client in clients if client not in drained]
        relay.redis.run("HSET", "relay:control", f"drain:{boot}", "1")
        relay.redis.run("HINCRBY", "relay:control", "version", 1)
        closed = [asyncio.create_task(client.closed(15)) for client in drained]
        await asyncio.wait(closed, return_when=asyncio.FIRST_COMPLETED)
        for twin in fresh_twins(20):  # at once: the draining worker must not be chosen any more
            async with session(relay.url, twin) as back:
                await back.barrier()
        assert await asyncio.gather(*closed) == [(1012, "drained")] * len(drained)
        for client in others:
            await client.barrier()
        for client in drained:
            async with session(relay.url, client.twin) as back:
                await back.barrier()
                assert (await _entered(relay, [client.twin]))[str(client.twin.id)][1] != boot


async def _entered(relay: RelayProcess, twins: list[Twin]) -> dict[str, tuple[int, str]]:
    """Return the directory once all twins are in it: the claim may follow the upgrade."""

    def entries() -> dict[str, tuple[int, str]] | None:
        found = directory(relay.redis)
        return found if all(str(twin.id) in found for twin in twins) else None

    found: dict[str, tuple[int, str]] = await eventually(entries)
    return found


@pytest.fixture
def relay_pair_own(start_relay) -> RelayProcess:
    relay: RelayProcess = start_relay(processes=2, settings={"relay.drain_s": "1"})
    return relay


async def test_a_graceful_stop_closes_1012_and_loses_nothing(start_server, start_relay) -> None:
    server = start_server(append_fsync="no")
    relay = start_relay(server, settings={"relay.drain_s": "1"})
    one, two = fresh_twins(2)
    async with session(relay.url, one) as sender, session(relay.url, two) as receiver:
        for number in range(200):
            await sender.request(receiver.key, b"%d" % number)
        await sender.barrier()
        stopping = asyncio.create_task(asyncio.to_thread(relay.stop))
        assert await sender.closed() == (1012, "drained")
        assert await receiver.closed() == (1012, "drained")
        assert await stopping == 0
        got = [(await receiver.receive()).plain for _ in range(receiver.inbox.qsize())]
    assert directory(server) == {}
    relay.start()
    async with session(relay.url, two) as receiver:
        await receiver.barrier()
        got += [(await receiver.receive()).plain for _ in range(receiver.inbox.qsize())]
    assert got == [b"%d" % number for number in range(200)]


async def test_a_dead_worker_is_taken_out_of_the_directory(start_relay) -> None:
    relay = start_relay(processes=2)
    (twin,) = fresh_twins(1)
    async with session(relay.url, twin) as client:
        _, boot = (await _entered(relay, [twin]))[str(twin.id)]
        os.kill(relay.worker_pids()[boot], signal.SIGKILL)
        await client.closed()
    # A newcomer does not wait for a dead worker: it stops waiting for `released` after 500 ms.
    start = time.monotonic()
    async with session(relay.url, twin) as back:
        await back.barrier()
        assert time.monotonic() - start < 2
        assert (await _entered(relay, [twin]))[str(twin.id)][1] != boot


async def test_two_newcomers_at_two_workers(start_server, start_relay) -> None:
    """Of two newcomers at once, one stays and the other is closed, in each of a thousand rounds.

    No message is lost, duplicated or reordered.
    """
    server = start_server(append_fsync="no")
    relays = [start_relay(server), start_relay(server)]
    target, sender = fresh_twins(2)
    key = str(target.id)
    async with load(relays[0].url, window=2) as work:
        work.pause_s = 0.005
        work.add_sender(sender, [(target.id, None)])
        holder: RmbClient | None = None
        for number in range(NEWCOMER_ROUNDS):
            newcomers = await asyncio.gather(
                *(_newcomer(work, relay.url, target, number) for relay in relays)
            )
            if holder is not None:
                assert await holder.closed() == (4001, "replaced"), f"round {number}"
            ending = {asyncio.create_task(each.closed()): each for each in newcomers}
            done, _ = await asyncio.wait(ending, return_when=asyncio.FIRST_COMPLETED, timeout=10)
            assert len(done) == 1, f"round {number}: {len(done)} of two newcomers were closed"
            (task,) = done
            assert task.result() == (4001, "replaced")
            (holder,) = (each for each in newcomers if each is not ending[task])
            for task in ending:
                task.cancel()
            await holder.barrier()
            assert holder.open
        assert key in directory(server)
        work.clients[(target.id, None)] = holder
        await work.finish()
        work.ledger.check()
        await holder.close()


async def _newcomer(work: Load, url: str, twin, generation: int | None = None) -> RmbClient:
    client = await connect(url, twin)
    page = work.ledger.receiver(client.key, generation)
    client.on_message = lambda message: work._take(page, message)
    return client


async def test_order_through_connect_disconnect_replace_and_catch_up(
    start_server, start_relay
) -> None:
    """Order holds while receivers connect, leave, are replaced and fall behind, at two workers."""
    server = start_server(append_fsync="no")
    relays = [start_relay(server), start_relay(server)]
    rng = random.Random(3)
    senders, receivers = fresh_twins(3), fresh_twins(3)
    keys = [(twin.id, None) for twin in receivers]
    async with load(lambda: rng.choice(relays).url) as work:
        for twin in senders:
            work.add_sender(twin, keys)
        current: dict[int, RmbClient] = {}
        for _ in range(60):
            twin = rng.choice(receivers)
            client = current.pop(twin.id, None)
            deed = rng.choice(["close", "replace", "lag"])
            if client is not None and deed == "close":
                await client.close()
            elif client is not None and deed == "lag":
                client.stop_reading()
                await asyncio.sleep(0.1)
                client.resume_reading()
                current[twin.id] = client
                continue
            current[twin.id] = await _newcomer(work, rng.choice(relays).url, twin)
            if client is not None and deed == "replace":
                assert (await client.closed())[0] == 4001
            await asyncio.sleep(0.02)
        for twin in receivers:
            if twin.id not in current:
                current[twin.id] = await _newcomer(work, relays[0].url, twin)
        work.clients.update({(number, None): client for number, client in current.items()})
        await work.finish()
        work.ledger.check()
        for client in current.values():
            await client.close()


async def test_the_check_finds_nothing_in_quiet_times(start_server, start_relay) -> None:
    """Wake-ups announce all messages: the periodic check of the streams finds nothing unread."""
    server = start_server(append_fsync="no")
    relays = [start_relay(server), start_relay(server)]
    async with load(relays[0].url) as work:
        work.add_pairs(fresh_twins(4))
        own = work.url
        twin, sender = fresh_twins(2)
        work.url = lambda: relays[1].url
        key = work.add_receiver(twin)
        await eventually(lambda: key in work.clients)
        work.url = own
        work.add_sender(sender, [key])
        await work.run_until(3000, 60)
        await work.finish()
        work.ledger.check()
        # A second check follows the first: nothing was found within the time of two heartbeats.
        await heartbeats(relays[0], 3)
        assert published(relays[0], "relay_messages_queued_total") > 0
        assert published(relays[0], "relay_check_found_total") == 0

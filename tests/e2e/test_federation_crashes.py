"""Committed messages arrive, whichever process is killed: Redis, workers, relays at either end."""

from __future__ import annotations

import contextlib
import os
import signal
import time

from relay.federation import outbox
from relay.queues import keys
from relay.queues.held import pack
from tests.e2e.conftest import Trio
from tests.support import envelopes
from tests.support.federated import FederatedRelay, World, crossing
from tests.support.ledger import Ledger
from tests.support.rmb_client import signing_session
from tests.support.tcp_proxy import Direction, tcp_proxy
from tests.support.waiting import eventually

BACKLOG = 100_000
DRAINED_S = 60.0
"""Seconds for draining a backlog of `BACKLOG` messages, at most; the bench measures the speed."""


async def test_the_senders_redis_is_killed_under_load(trio: Trio, world: World) -> None:
    """No message is lost when the sender's Redis, which is task broker and outbox, is killed."""
    async with crossing(world, trio["a"], trio["b"]) as work:
        server = trio["a"].store
        server.kill()
        await eventually(lambda: trio["a"].get("/ready")[0] == 503)
        server.start()
        await work.run_until(500)
        await work.finish()
        work.ledger.check()
    await eventually(lambda: trio["a"].held_for(trio["b"].domain) == 0)


async def test_the_receivers_redis_is_killed_under_load(trio: Trio, world: World) -> None:
    async with crossing(world, trio["a"], trio["b"]) as work:
        server = trio["b"].store
        server.kill()
        await eventually(lambda: trio["b"].get("/ready")[0] == 503)
        server.start()
        await work.run_until(500)
        await work.finish()
        work.ledger.check()


async def test_the_receivers_worker_is_killed_under_load(trio: Trio, world: World) -> None:
    """The sessions end with their worker; messages that they had not acknowledged come again."""
    async with crossing(world, trio["a"], trio["b"]) as work:
        for pid in trio["b"].worker_pids().values():
            os.kill(pid, signal.SIGKILL)
        await work.run_until(500)
        await work.finish()
        work.ledger.check(allow_duplicates=True)


async def test_the_senders_relay_dies_with_mail_in_its_outbox(trio: Trio, world: World) -> None:
    a, b = trio["a"], trio["b"]
    (sender,), (receiver,) = world.twins("a", 1), world.twins("b", 1)
    ledger = Ledger()
    page = ledger.sender()
    key = (receiver.id, None)
    b.kill()
    async with signing_session(a.url, sender) as client:
        for _ in range(500):
            await client.request(key, page.next_payload(key), expiration=1800)
        await client.barrier()
        page.confirm(page.sent)
    assert a.held_for(b.domain) == 500
    a.kill()
    for relay in (b, a):
        relay.start(wait=False)
    for relay in (b, a):
        relay.wait_ready()
    async with signing_session(b.url, receiver) as client:
        client.on_message = ledger.receiver(key).take
        await eventually(lambda: not ledger.missing())
        await client.barrier()
        ledger.check()
    await eventually(lambda: a.held_for(b.domain) == 0)


async def test_drainers_begin_while_the_senders_redis_is_full(trio: Trio, world: World) -> None:
    """Drainers start although the broker accepts no task while Redis is full.

    The outbox may be what fills Redis, and would otherwise never be drained.
    """
    a, b = trio["a"], trio["b"]
    (sender,), (receiver,) = world.twins("a", 1), world.twins("b", 1)
    b.kill()
    async with signing_session(a.url, sender) as client:
        for number in range(20):
            await client.request((receiver.id, None), b"%d" % number, expiration=1800)
        await client.barrier()
    try:
        a.store.run("CONFIG", "SET", "maxmemory", 1)
        for queues in ("federation", "chain,default"):
            await a.kill_celery(queues)
        b.start()
        async with signing_session(b.url, receiver) as client:
            found = await client.receive_many(20, timeout_s=60)
            assert [each.plain for each in found] == [b"%d" % number for number in range(20)]
        await eventually(lambda: a.held_for(b.domain) == 0)
    finally:
        a.store.run("CONFIG", "SET", "maxmemory", 0)


async def test_an_answer_that_is_lost_doubles_nothing(trio: Trio, world: World) -> None:
    """If relay b accepts messages but its answers are lost, no message is duplicated.

    This holds for batches and for single messages.
    """
    a, b = trio["a"], trio["b"]
    (sender,), receivers = world.twins("a", 1), world.twins("proxy", 3)
    ledger = Ledger()
    page = ledger.sender()
    async with contextlib.AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(
            tcp_proxy(("127.0.0.1", b.port), port=world.ports["proxy"])
        )
        for receiver in receivers:
            client = await stack.enter_async_context(signing_session(b.url, receiver))
            client.on_message = ledger.receiver(client.key).take
        client = await stack.enter_async_context(signing_session(a.url, sender))

        async def send(count: int) -> None:
            for _ in range(count):
                for receiver in receivers:
                    key = (receiver.id, None)
                    await client.request(key, page.next_payload(key))
            await client.barrier()
            page.confirm(page.sent)

        def taken() -> int:
            return sum(len(receiver.got) for receiver in ledger.receivers)

        for _ in range(2):
            for connection in proxy.connections:
                connection.reset()
            proxy.interceptor = lambda flow, data: (
                0 if flow.direction is Direction.TO_CLIENT else None
            )
            before = taken()
            await send(20)
            # Drainers of a relay that was killed before keep their leases for a while.
            await eventually(lambda before=before: taken() > before)
            proxy.interceptor = None
            await eventually(lambda: not ledger.missing())
        # One more answer that never arrives, until the relay stops waiting for it.
        await send(1)
        await eventually(lambda: not ledger.missing())
        proxy.stall(Direction.TO_CLIENT)
        await send(20)
        await eventually(lambda: not ledger.missing())
        await eventually(lambda: a.held_for(world.domain("proxy")) == 0)
        ledger.check()
    assert b.counted("federation_inbound_repeated_total") > 0, "the case did not occur"


async def test_a_backlog_is_drained(trio: Trio, world: World) -> None:
    """The largest backlog that a relay may hold for another is drained; the sender is trusted."""
    a, b = trio["a"], trio["b"]
    senders, receivers = world.twins("a", 10), world.twins("b", 10)
    (prober,), (probed,) = world.twins("a", 1), world.twins("c", 1)
    b.decide(a.domain, "trusted")
    a.decide(b.domain, "paused")
    async with signing_session(a.url, prober) as client:
        await a.noticed(client, (probed.id, None), trio["c"].domain)
    try:
        for sender, receiver in zip(senders, receivers, strict=True):
            fill(a, b.domain, sender.id, receiver.id, BACKLOG // len(senders))
        assert a.held_for(b.domain) == BACKLOG
        async with contextlib.AsyncExitStack() as stack:
            got: dict[int, list[int]] = {receiver.id: [] for receiver in receivers}
            for receiver in receivers:
                client = await stack.enter_async_context(signing_session(b.url, receiver))
                numbers = got[receiver.id]
                client.on_message = lambda message, numbers=numbers: numbers.append(
                    int(message[message.rindex(b"#") + 1 :])
                )
            began = time.monotonic()
            a.decide(b.domain, "")
            await eventually(
                lambda: sum(map(len, got.values())) >= BACKLOG, DRAINED_S, "the backlog is gone"
            )
            rate = BACKLOG / (time.monotonic() - began)
            print(f"a backlog leaves at {rate:.0f} messages/s")
        for numbers in got.values():
            assert numbers == list(range(BACKLOG // len(senders)))
        await eventually(lambda: a.held_for(b.domain) == 0)
        assert not a.store.run("EXISTS", keys.held(b.domain)), "nothing is counted any more"
    finally:
        b.decide(a.domain, "")
        a.decide(b.domain, "")


def fill(relay: FederatedRelay, domain: str, source: int, destination: int, count: int) -> None:
    """Put messages for a twin of a partner relay into the outbox; they end in `#<number>`."""
    account = outbox.account_of([domain])
    with (
        contextlib.closing(relay.store.client()) as client,
        client.pipeline(transaction=True) as pipe,
    ):
        packed = 0
        for number in range(count):
            payload = b"." * 200 + b"#%d" % number
            envelope = envelopes.request((source, None), (destination, None), payload)
            data = envelope.SerializeToString()
            fields = {outbox.ENVELOPE: data, outbox.ORIGIN: source, outbox.ACCOUNT: account}
            pipe.xadd(keys.outbox(destination), fields)
            packed += pack(1, len(data))
        pipe.hincrby(keys.held(account), outbox.TOTAL, packed)
        pipe.hincrby(keys.held(account), str(source), packed)
        pipe.execute()

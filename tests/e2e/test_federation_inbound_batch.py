"""The batch form of delivery between relays of this kind."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from proto.federation import batch
from tests.support.federation_client import federation, queued, record, signed
from tests.support.refused_envelopes import refused_envelopes
from tests.support.relay_process import RelayProcess
from tests.support.rmb_client import session
from tests.support.waiting import eventually, fresh_window
from tests.support.world import ELSEWHERE_TWIN as FAR
from tests.support.world import fresh_twins


async def test_a_batch_is_delivered_in_order(any_relay: RelayProcess) -> None:
    one, two = fresh_twins(2)
    async with (
        session(any_relay.url, one) as first,
        session(any_relay.url, two) as second,
        federation(any_relay.port) as other,
    ):
        for start in (0, 512):
            records = [
                record(n, signed(FAR, (first if n % 2 else second).key, b"%d" % n))
                for n in range(start, start + 512)
            ]
            assert await other.deliver_batch(records) == (202,) * 512
        for client, odd in ((first, 1), (second, 0)):
            got = [int(each.plain) for each in await client.receive_many(512)]
            assert got == list(range(odd, 1024, 2))


async def test_a_batch_has_a_status_for_each(relay: RelayProcess) -> None:
    cases = list(refused_envelopes().values())
    (one,) = fresh_twins(1)
    records, expected = [], []
    for number, (status, body, _) in enumerate(cases):
        content = body if isinstance(body, bytes) else body.SerializeToString()
        records.append(batch.Record(b"1-%d-0" % number, False, content))
        records.append(record(100 + number, signed(FAR, (one.id, None))))
        expected += [status, 202]
    async with federation(relay.port) as other:
        assert list(await other.deliver_batch(records)) == expected
    async with session(relay.url, one) as client:
        assert len(await client.receive_many(len(cases))) == len(cases)


async def test_later_messages_wait_for_one_refused_for_now(start_server, start_relay) -> None:
    server = start_server()
    relay = start_relay(server, settings={"limits.count": "5", "limits.size": "100000"})
    one, two, noisy = fresh_twins(3)
    records = [record(n, signed(noisy, (one.id, None), b"%d" % n)) for n in range(6)]
    records.append(record(6, signed(FAR, (one.id, None), b"after it, from another twin")))
    records.append(record(7, signed(FAR, (two.id, None), b"to another twin")))
    await fresh_window(10)
    async with federation(relay.port) as other:
        assert await other.deliver_batch(records) == (202,) * 5 + (503, 503, 202)
        assert len(queued(server, one)) == 5


async def test_what_is_no_batch(relay: RelayProcess) -> None:
    async with federation(relay.port) as other:
        assert (await other.post(b"", batch.PATH)).status == 400
        assert (await other.post(b"\x05abc", batch.PATH)).status == 400
        assert await other.deliver_batch([]) == ()
        many = b"\x02aa" + b"\x01i\x00\x00" * 513
        assert (await other.post(many, batch.PATH)).status == 413
    async with federation(relay.port) as other:
        assert (await other.post(bytes((4 << 20) + 1), batch.PATH)).status == 413


async def test_a_relay_that_does_not_offer_batches_404(start_relay) -> None:
    relay = start_relay(settings={"federation.batch": "false"})
    (one,) = fresh_twins(1)
    envelope = signed(FAR, (one.id, None))
    async with federation(relay.port) as other:
        body = batch.encode(b"aa", [record(1, envelope)])
        assert (await other.post(body, batch.PATH)).status == 404
        answer = await other.post(envelope)
        assert answer.status == 202 and "rmb-federation" not in answer.headers


async def test_the_order_stays_where_storage_was_full_in_the_middle(
    start_server, start_relay
) -> None:
    """The order holds for a batch of several commits if one fails before there is space again."""
    server = start_server()
    relay = start_relay(server)
    one, two = fresh_twins(2)
    records = [
        record(number, signed(FAR, (one.id, None), b"%d" % number + bytes(600_000)))
        for number in range(6)
    ]
    async with AsyncExitStack() as stack:
        first, second, third = [
            await stack.enter_async_context(federation(relay.port)) for _ in range(3)
        ]
        server.run("CONFIG", "SET", "maxmemory", 1)
        # The first is alone in its commit; the second begins the commit that follows.
        alone = asyncio.create_task(first.deliver(signed(FAR, (two.id, None)), "1-0-0"))
        await eventually(lambda: "errorstat_EXECABORT" in server.run("INFO", "errorstats"))
        refused = asyncio.create_task(second.deliver(signed(FAR, (two.id, None)), "1-1-0"))
        statuses = asyncio.create_task(third.deliver_batch(records))
        assert (await refused).status == 503
        server.run("CONFIG", "SET", "maxmemory", 0)
        assert list(await statuses) == sorted(await statuses), "none overtakes one that comes again"
        await alone

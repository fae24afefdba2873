"""What a worker writes into the outbox for partner relays, and when it refuses to."""

from __future__ import annotations

from relay.queues import keys
from relay.queues.held import Held, pack, unpack
from tests.support.redis_servers import RedisServer
from tests.support.rmb_client import session
from tests.support.waiting import eventually
from tests.support.world import ELSEWHERE_TWIN, PORT_DOMAIN_TWIN, fresh_twins

AWAY = (ELSEWHERE_TWIN.id, None)
ACCOUNT = ELSEWHERE_TWIN.relays


def entries_for(server: RedisServer, twin: int) -> list[dict[bytes, bytes]]:
    """Return the entries of the shard of a destination twin."""
    return [fields for _, fields in server.run("XRANGE", keys.outbox(twin), "-", "+")]


def held(server: RedisServer, account: str, field: str) -> Held:
    return unpack(int(server.run("HGET", keys.held(account), field) or 0))


async def test_entries_name_their_sender_and_account(start_server, start_relay) -> None:
    server = start_server()
    relay = start_relay(server)
    one, two = fresh_twins(2)
    async with session(relay.url, one, "s") as first, session(relay.url, two) as second:
        sent = [await first.request(AWAY, b"a"), await first.request(AWAY, b"bb")]
        await first.barrier()
        sent.append(await second.request(AWAY, b"ccc"))
        await second.request((PORT_DOMAIN_TWIN.id, "x"), b"d")
        await second.barrier()
    payloads = [envelope.SerializeToString() for envelope in sent]
    assert entries_for(server, ELSEWHERE_TWIN.id) == [
        {b"_": payload, b"from": origin, b"for": ACCOUNT.encode()}
        for payload, origin in zip(
            payloads, [b"%d:s" % one.id, b"%d:s" % one.id, b"%d" % two.id], strict=True
        )
    ]
    (entry,) = entries_for(server, PORT_DOMAIN_TWIN.id)
    assert entry[b"for"] == b"127.0.0.1:8080_elsewhere.example"
    sizes = [len(payload) for payload in payloads]
    assert held(server, ACCOUNT, "total") == (3, sum(sizes))
    assert held(server, ACCOUNT, str(one.id)) == (2, sizes[0] + sizes[1])
    assert held(server, ACCOUNT, str(two.id)) == (1, sizes[2])


async def test_a_source_fills_its_quarter_and_is_told(start_server, start_relay) -> None:
    server = start_server()
    relay = start_relay(
        server, settings={"federation.max_messages": "40", "celery.embedded": "false"}
    )
    one, two = fresh_twins(2)
    async with session(relay.url, one) as greedy, session(relay.url, two) as other:
        for _ in range(10):
            await greedy.request(AWAY)
            await greedy.barrier()
        refused = await greedy.request(AWAY)
        answer = await greedy.receive()
        assert (answer.uid, answer.error.message) == (refused.uid, "federation queue is full")
        await other.request(AWAY)
        await other.barrier()
        assert other.inbox.empty(), "the rest is for others"
        assert held(server, ACCOUNT, "total").messages == 11
        await eventually(lambda: relay.counted("relay_messages_total", reason="outbox_full") == 1)
        # Does what a drainer does when it settles an entry.
        for field in ("total", str(one.id)):
            server.run("HINCRBY", keys.held(ACCOUNT), field, -pack(1, 1))

        async def taken() -> bool:
            await greedy.request(AWAY)
            await greedy.barrier()
            while not greedy.inbox.empty():
                greedy.inbox.get_nowait()
            return len(entries_for(server, ELSEWHERE_TWIN.id)) == 12

        await eventually(taken)


async def test_an_account_is_full_for_everybody(start_server, start_relay) -> None:
    server = start_server()
    relay = start_relay(
        server, settings={"federation.max_messages": "8", "celery.embedded": "false"}
    )
    twins = fresh_twins(5)
    for twin in twins[:4]:
        async with session(relay.url, twin) as sender:
            for _ in range(2):
                await sender.request(AWAY)
                await sender.barrier()
    async with session(relay.url, twins[4]) as last:
        await last.request(AWAY)
        assert (await last.receive()).error.message == "federation queue is full"
        await last.request((PORT_DOMAIN_TWIN.id, None))
        await last.barrier()
        assert last.inbox.empty(), "another account has room"

"""Answers to partner relays for the messages they deliver, and what becomes of these messages."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3

import pytest

from proto.rmb import challenge, notices
from proto.rmb import types_pb2 as pb
from tests.support import envelopes
from tests.support.federation_client import FederationClient, federation, queued, signed
from tests.support.identities import TEST_DOMAIN, Twin
from tests.support.refused_envelopes import refused_envelopes
from tests.support.relay_process import RelayProcess
from tests.support.rmb_client import session
from tests.support.waiting import eventually, fresh_window
from tests.support.world import (
    BOTH_TWIN,
    PORT_DOMAIN_TWIN,
    UNKNOWN_TWIN,
    fresh_twins,
)
from tests.support.world import ELSEWHERE_DOMAIN as FAR_DOMAIN
from tests.support.world import ELSEWHERE_TWIN as FAR

# --- accepted ------------------------------------------------------------------------------------


async def test_a_message_of_the_reference_kind_is_delivered_202(any_relay: RelayProcess) -> None:
    """A POST of the bare envelope, without this relay's headers, is delivered: answer 202."""
    (one,) = fresh_twins(1)
    async with session(any_relay.url, one, "s") as client, federation(any_relay.port) as other:
        await client.barrier()
        for number in range(20):
            sent = signed(FAR, client.key, b"%d" % number)
            answer = await other.post(sent)
            assert (answer.status, answer.body) == (202, b"")
            assert answer.headers["rmb-federation"] == "batch=1"
            assert await client.receive_bytes() == sent.SerializeToString()


async def test_a_message_waits_for_its_session(relay: RelayProcess) -> None:
    (one,) = fresh_twins(1)
    async with federation(relay.port) as other:
        for number in range(3):
            assert (await other.post(signed(FAR, (one.id, None), b"%d" % number))).status == 202
    async with session(relay.url, one) as client:
        assert [each.plain for each in await client.receive_many(3)] == [b"0", b"1", b"2"]


async def test_a_session_of_another_worker_gets_it(start_server, start_relay) -> None:
    server = start_server()
    relays = [start_relay(server), start_relay(server)]
    (one,) = fresh_twins(1)
    async with session(relays[1].url, one) as client, federation(relays[0].port) as other:
        await client.barrier()
        sent = [signed(FAR, client.key, b"%d" % number, tags="fail-fast") for number in range(50)]
        assert {(await other.post(each)).status for each in sent} == {202}
        assert [each.plain for each in await client.receive_many(50)] == [
            b"%d" % number for number in range(50)
        ]


async def test_all_kinds_of_sources_are_believed_by_their_signature(relay: RelayProcess) -> None:
    one, local = fresh_twins(2)
    async with session(relay.url, one) as client, federation(relay.port) as other:
        response = envelopes.response((FAR.id, "x"), client.key, b"response")
        challenge.sign(response, FAR.signing_key)
        for sent in (
            signed(local, client.key, b"a twin of this relay that is elsewhere now"),
            signed(FAR, client.key, b"with an empty sid", sid=""),
            signed(BOTH_TWIN, client.key, b"x" * 300_000),
            response,
        ):
            assert (await other.post(sent)).status == 202
            assert await client.receive_bytes() == sent.SerializeToString()


async def test_errors_made_by_relays_are_not_signed(relay: RelayProcess) -> None:
    (one,) = fresh_twins(1)
    async with session(relay.url, one, "s") as client, federation(relay.port) as other:
        notice = envelopes.request((0, None), client.key, uid="asked")
        notice.ClearField("source")
        notice.error.message = "destination offline"
        assert (await other.post(notice)).status == 202
        assert (await client.receive()).error.message == "destination offline"
        notice.request.command = "not an error"
        assert (await other.post(notice)).status == 403
        notice.error.message = "for a twin that is not of this relay"
        notice.destination.twin = FAR.id
        assert (await other.post(notice)).status == 403


async def test_a_guest_is_of_this_relay_while_it_is_here(relay: RelayProcess) -> None:
    async with federation(relay.port) as other:
        assert (await other.post(signed(FAR, (PORT_DOMAIN_TWIN.id, None)))).status == 403
        async with session(relay.url, PORT_DOMAIN_TWIN) as guest:
            await guest.barrier()
            assert (await other.post(signed(FAR, guest.key, b"to a guest"))).status == 202
            assert (await guest.receive()).plain == b"to a guest"


async def test_several_own_domains_match(start_relay) -> None:
    relay = start_relay(domains=(TEST_DOMAIN, FAR_DOMAIN))
    (one,) = fresh_twins(1)
    async with federation(relay.port) as other:
        for destination in (one, FAR, BOTH_TWIN):
            answer = await other.post(signed(PORT_DOMAIN_TWIN, (destination.id, None)))
            assert answer.status == 202


# --- refused for good ----------------------------------------------------------------------------


async def test_refusals_are_final_counted_and_keep_the_connection(relay: RelayProcess) -> None:
    def refusals(status: int, reason: str) -> float:
        return relay.counted("federation_inbound_refused_total", status=str(status), reason=reason)

    cases = refused_envelopes()
    before = {(status, reason): refusals(status, reason) for status, _, reason in cases.values()}
    expected = dict(before)
    async with federation(relay.port) as other:
        for what, (status, body, reason) in cases.items():
            answer = await other.post(body)
            assert answer.status == status, what
            assert answer.body and b"Traceback" not in answer.body
            assert "retry-after" not in answer.headers
            expected[status, reason] += 1
    await eventually(lambda: expected == {key: refusals(*key) for key in expected})
    assert relay.redis is not None
    assert relay.redis.run("KEYS", f"stream:{UNKNOWN_TWIN.id}*") == []


async def test_a_body_above_the_bound_413(start_relay) -> None:
    relay = start_relay(settings={"relay.max_message_bytes": "65536"})
    (one,) = fresh_twins(1)
    async with federation(relay.port) as other:
        assert (await other.post(signed(FAR, (one.id, None), bytes(65_000)))).status == 202
    async with federation(relay.port) as other:
        answer = await other.post(signed(FAR, (one.id, None), bytes(66_000)))
        assert (answer.status, answer.headers["connection"]) == (413, "close")


# --- refused for now -----------------------------------------------------------------------------


async def _refused_for_now(other: FederationClient, envelope: pb.Envelope) -> None:
    answer = await other.post(envelope)
    assert answer.status == 503, answer
    assert int(answer.headers["retry-after"]) >= 1


async def test_a_full_queue_503_and_room_again(start_server, start_relay) -> None:
    """A worker notices free space although the session of another worker emptied the queue."""
    server = start_server()
    relays = [
        start_relay(server, settings={"queue.max_messages": "20"}),
        start_relay(server, settings={"queue.max_messages": "20"}),
    ]
    one, *sources = fresh_twins(8)
    async with federation(relays[0].port) as other:
        for number in range(20):
            source = sources[number % len(sources)]
            answer = await other.post(signed(source, (one.id, None), b"%d" % number))
            assert answer.status == 202
        await _refused_for_now(other, signed(FAR, (one.id, None)))
        async with session(relays[1].url, one) as client:
            await client.receive_many(20)
            await eventually(lambda: queued(server, one) == [])

            async def accepted() -> bool:
                return (await other.post(signed(FAR, (one.id, None), b"again"))).status == 202

            await eventually(accepted)
            assert (await client.receive()).plain == b"again"


async def test_a_source_above_its_limit_503(start_relay) -> None:
    relay = start_relay(settings={"limits.count": "10", "limits.size": "100000"})
    one, noisy = fresh_twins(2)
    async with federation(relay.port) as other:
        for _ in range(40):
            # Forged messages do not count against the limit.
            forged = envelopes.request((noisy.id, None), (one.id, None))
            assert (await other.post(forged)).status == 403
        await fresh_window(10)
        accepted = 0
        for _ in range(25):
            accepted += (await other.post(signed(noisy, (one.id, None)))).status == 202
        assert accepted == 10
        answer = await other.post(signed(FAR, (one.id, None)))
        assert answer.status == 202, "another twin of the same relay"


async def test_a_flood_from_one_address_503(start_relay) -> None:
    relay = start_relay(settings={"federation.requests_per_ip_per_s": "2"})
    (one,) = fresh_twins(1)
    statuses: list[int] = []
    while 503 not in statuses and len(statuses) < 150:
        async with federation(relay.port) as other:
            statuses.append((await other.post(signed(FAR, (one.id, None)))).status)
    assert set(statuses) == {202, 503}
    refused = {"status": "503", "reason": "address_limit"}
    await eventually(
        lambda: relay.counted("federation_inbound_refused_total", **refused) == statuses.count(503)
    )
    async with federation(relay.port) as other:

        async def accepted() -> bool:
            return (await other.post(signed(FAR, (one.id, None)))).status == 202

        await eventually(accepted)


ROOM = {"queue.max_bytes": str(16 << 20)}


async def test_large_messages_of_one_twin_leave_room_in_a_mailbox(
    start_server, start_relay
) -> None:
    """Of a queue more than half full, one source twin may have at most a quarter of its bytes."""
    server = start_server()
    relays = [start_relay(server, settings=ROOM), start_relay(server, settings=ROOM)]
    one, honest = fresh_twins(2)
    async with federation(relays[0].port) as other:

        def large() -> pb.Envelope:
            return signed(FAR, (one.id, None), bytes(3 << 20))

        statuses = [(await other.post(large())).status for _ in range(8)]
        assert statuses == [202] * 2 + [503] * 6
        assert (await other.post(signed(honest, (one.id, None), b"honest"))).status == 202
        # Another worker learns of the share with the first message that it accepts.
        async with federation(relays[1].port) as second:
            assert [(await second.post(large())).status for _ in range(4)] == [202] + [503] * 3
            assert (await second.post(signed(honest, (one.id, None), b"honest"))).status == 202
        async with session(relays[0].url, one) as client:
            await client.receive_many(5)
            await eventually(lambda: queued(server, one) == [])
        assert (await other.post(large())).status == 202, "counting begins anew"


async def test_large_messages_at_once_leave_room_in_a_mailbox(start_relay) -> None:
    """Messages on their way into the queue count towards the share, too."""
    relay = start_relay(settings=ROOM)
    one, honest = fresh_twins(2)
    large = [signed(FAR, (one.id, None), bytes(3 << 20)) for _ in range(10)]

    async def post(envelope: pb.Envelope) -> int:
        async with federation(relay.port) as other:
            return (await other.post(envelope)).status

    statuses = await asyncio.gather(*map(post, large))
    assert statuses.count(202) == 2, statuses
    assert await post(signed(honest, (one.id, None), b"honest")) == 202


def _notice(destination: Twin, number: int) -> pb.Envelope:
    """Return an unsigned error, as relays make them."""
    asked = envelopes.request((destination.id, None), None, uid=f"asked-{number}")
    return pb.Envelope.FromString(notices.error_notice(asked, notices.OFFLINE, 1_800_000_000))


async def test_a_source_of_another_relay_has_so_much_waiting(start_server, start_relay) -> None:
    relay = start_relay(start_server(), settings={"queue.twin_queues": "20"})
    twins = fresh_twins(40)
    async with federation(relay.port) as other:
        answers = [await other.post(signed(FAR, (one.id, None), b"signed")) for one in twins]
    accepted = [answer.status for answer in answers].count(202)
    assert 20 <= accepted <= 22
    refused = {"status": "503", "reason": "source_full"}
    await eventually(
        lambda: relay.counted("federation_inbound_refused_total", **refused) == 40 - accepted
    )


@pytest.mark.parametrize("overflow", ["refuse", "drop_oldest"])
async def test_what_nobody_signed_leaves_room_in_a_mailbox(
    start_server, start_relay, overflow: str
) -> None:
    """Unsigned errors of relays fill a sixteenth of a queue, at most.

    This holds also where they would displace other messages.
    """
    server = start_server()
    relay = start_relay(server, settings={"queue.max_messages": "1600", "queue.overflow": overflow})
    (one,) = fresh_twins(1)
    async with federation(relay.port) as other:
        statuses = [(await other.post(_notice(one, number))).status for number in range(200)]
        assert (await other.post(signed(FAR, (one.id, None), b"signed"))).status == 202
    assert set(statuses) == {202, 503}
    assert 100 <= statuses.count(202) <= 105, "one by one nothing is overrun but by some on its way"
    assert len(queued(server, one)) == statuses.count(202) + 1
    refused = {"status": "503", "reason": "source_share"}
    await eventually(
        lambda: relay.counted("federation_inbound_refused_total", **refused) == statuses.count(503)
    )


async def test_what_nobody_signed_has_a_rate_for_each_address(relay: RelayProcess) -> None:
    twins = fresh_twins(4)
    connections, each = 8, 300  # in parallel: in sequence a slow machine stays below the rate

    async def post(first: int) -> list[int]:
        async with federation(relay.port, "127.0.0.2") as other:
            numbers = range(first, connections * each, connections)
            return [(await other.post(_notice(twins[n % 4], n))).status for n in numbers]

    answered = await asyncio.gather(*map(post, range(connections)))
    statuses = [status for each_of in answered for status in each_of]
    assert set(statuses) == {202, 503}
    assert statuses.count(202) >= 1000
    async with federation(relay.port, "127.0.0.2") as other:
        assert (await other.post(signed(FAR, (twins[0].id, None)))).status == 202
    async with federation(relay.port, "127.0.0.3") as other:
        assert (await other.post(_notice(twins[0], 0))).status == 202


async def test_a_failed_look_up_503(start_relay) -> None:
    relay = start_relay(settings={"twins.cache_s": "0.1"})
    (one,) = fresh_twins(1)
    with contextlib.closing(sqlite3.connect(relay.database_path())) as database:
        database.execute("ALTER TABLE relay_twins_twin RENAME TO out_of_reach")
    async with federation(relay.port) as other:
        await _refused_for_now(other, signed(FAR, (one.id, None)))


async def test_redis_away_503(start_server, start_relay) -> None:
    server = start_server(append_fsync="no")
    relay = start_relay(server)
    (one,) = fresh_twins(1)
    async with federation(relay.port) as other:
        assert (await other.post(signed(FAR, (one.id, None), b"before"))).status == 202
    server.kill()
    await eventually(lambda: relay.get("/ready")[0] == 503)
    async with federation(relay.port) as other:
        await _refused_for_now(other, signed(FAR, (one.id, None), b"away"))
    server.restart()
    await eventually(lambda: relay.get("/ready")[0] == 200)
    async with federation(relay.port) as other:
        assert (await other.post(signed(FAR, (one.id, None), b"after"))).status == 202
    async with session(relay.url, one) as client:
        assert [each.plain for each in await client.receive_many(2)] == [b"before", b"after"]


async def test_out_of_memory_503_and_nothing_half_stored(start_server, start_relay) -> None:
    server = start_server()
    relay = start_relay(server)
    (one,) = fresh_twins(1)
    accepted = 0
    async with federation(relay.port) as other:
        used = server.run("INFO", "memory")["used_memory"]
        server.run("CONFIG", "SET", "maxmemory", used + 300_000)
        for number in range(200):
            envelope = signed(FAR, (one.id, None), bytes(16_384))
            answer = await other.deliver(envelope, f"1-{number}-0")
            if answer.status == 503:
                break
            accepted += 1
        else:
            pytest.fail("storage was never full")
        assert answer.body == b"relay storage is full"
        server.run("CONFIG", "SET", "maxmemory", 0)
        assert len(queued(server, one)) == accepted
        # Not remembered as accepted, so its repeat is accepted.
        assert (await other.deliver(envelope, f"1-{number}-0", retry=True)).status == 202
        assert len(queued(server, one)) == accepted + 1


async def test_a_drain_503_and_what_is_under_way_is_answered(start_relay) -> None:
    relay = start_relay(settings={"relay.drain_s": "2"})
    twins = fresh_twins(3)
    async with contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(session(relay.url, each)) for each in twins]
        await clients[-1].barrier()
        other = await stack.enter_async_context(federation(relay.port))
        stopping = asyncio.create_task(asyncio.to_thread(relay.stop))
        statuses = []
        with contextlib.suppress(ConnectionError):
            while not statuses or statuses[-1] == 202:
                statuses.append((await other.post(signed(FAR, clients[-1].key))).status)
        assert statuses[-1] == 503
        assert await stopping == 0


async def test_what_comes_through_other_relays_is_no_session(start_relay) -> None:
    bounds = {"relay.sessions_per_twin": "1", "limits.count": "5", "limits.size": "100000"}
    relay = start_relay(settings=bounds)
    author, one = fresh_twins(2)
    async with federation(relay.port) as other:
        assert (await other.post(signed(author, (one.id, None)))).status == 202
    async with session(relay.url, author, "s"):
        pass

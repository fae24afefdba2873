"""What another relay is answered for the messages it brings, and what becomes of them."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3

import pytest

from proto.federation import batch
from proto.identity import signing
from proto.rmb import challenge
from proto.rmb import types_pb2 as pb
from tests.support import envelopes
from tests.support.federation_client import FederationClient, federation, signed
from tests.support.identities import TEST_DOMAIN, Twin
from tests.support.redis_servers import RedisServer
from tests.support.relay_process import RelayProcess, eventually
from tests.support.rmb_client import session
from tests.support.world import (
    BEYOND_TWIN,
    BOTH_TWIN,
    ELSEWHERE_TWIN,
    NO_RELAY_TWIN,
    PORT_DOMAIN_TWIN,
    UNKNOWN_TWIN,
    fresh_twins,
)

FAR = ELSEWHERE_TWIN
FAR_DOMAIN = "elsewhere.example"


def record(number: int, envelope: pb.Envelope, *, retry: bool = False) -> batch.Record:
    return batch.Record(b"3-%d-0" % number, retry, envelope.SerializeToString())


def decide(server: RedisServer, domain: str, flags: str) -> None:
    """What the operator's pages publish about a relay."""
    server.run("HSET", "relay:control", f"relay:{domain}", flags)
    server.run("HINCRBY", "relay:control", "version", 1)


def queued(server: RedisServer, twin: Twin) -> list[bytes]:
    return [fields[b"_"] for _, fields in server.run("XRANGE", f"stream:{twin.id}", "-", "+")]


# --- accepted ------------------------------------------------------------------------------------


async def test_a_message_of_the_reference_kind_is_delivered_202(any_relay: RelayProcess) -> None:
    """A POST of the bare envelope, without any header of ours."""
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


def _ed25519(twin: Twin) -> signing.SigningKey:
    return signing.SigningKey.from_mini_secret(twin.mini_secret, signing.KeyType.ED25519)


def _refused_envelopes() -> dict[str, tuple[int, pb.Envelope | bytes, str]]:
    """What, the status, and the reason it is counted under."""
    one, two = fresh_twins(2)
    here = (one.id, None)
    unsigned = envelopes.request((FAR.id, None), here)
    foreign = envelopes.request((FAR.id, None), here)
    challenge.sign(foreign, two.signing_key)
    changed = signed(FAR, here, b"pay 1")
    changed.plain = b"pay 2"
    resent = signed(FAR, here)
    resent.destination.connection = "x"
    short = signed(FAR, here)
    short.signature = short.signature[:64]
    other_scheme = envelopes.request((FAR.id, None), here)
    challenge.sign(other_scheme, _ed25519(FAR))
    nobody = signed(FAR, here)
    nobody.source.twin = 0
    garbage = signed(FAR, here)
    garbage.signature = b"s" + bytes(64)
    return {
        "empty": (400, b"", "empty"),
        "garbage": (400, b"\xff" * 100, "unparsable"),
        "json": (400, b'{"uid": "x"}', "unparsable"),
        "no destination": (400, signed(FAR, None), "missing_destination"),
        "destination twin 0": (400, signed(FAR, (0, None)), "missing_destination"),
        "unknown twin": (403, signed(FAR, (UNKNOWN_TWIN.id, None)), "unknown_twin"),
        "twin above the highest": (403, signed(FAR, (BEYOND_TWIN.id, None)), "unknown_twin"),
        "twin without relay": (403, signed(FAR, (NO_RELAY_TWIN.id, None)), "no_relay"),
        "twin of another relay": (403, signed(one, (FAR.id, None)), "not_here"),
        "unsigned": (403, unsigned, "bad_signature"),
        "signed by another twin": (403, foreign, "bad_signature"),
        "changed": (403, changed, "bad_signature"),
        "for another session": (403, resent, "bad_signature"),
        "short signature": (403, short, "bad_signature"),
        "zeros for a signature": (403, garbage, "bad_signature"),
        "another key of the twin": (403, other_scheme, "bad_signature"),
        "no source": (403, nobody, "bad_signature"),
        "unknown source": (403, signed(UNKNOWN_TWIN, here), "unknown_source"),
        "absent and in a hurry": (404, signed(FAR, here, tags="fail-fast"), "offline_failfast"),
        "long uid": (413, signed(FAR, here, uid="u" * 300), "too_large"),
        "long tags": (413, signed(FAR, here, tags="t" * 1100), "too_large"),
        "long connection": (413, signed(FAR, (one.id, "c" * 129)), "too_large"),
        "long source connection": (413, signed(FAR, here, sid="c" * 129), "too_large"),
    }


async def test_refusals_are_final_counted_and_keep_the_connection(relay: RelayProcess) -> None:
    def refusals(status: int, reason: str) -> float:
        return relay.counted("federation_inbound_refused_total", status=str(status), reason=reason)

    cases = _refused_envelopes()
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
    """Room is noticed although the queue was emptied by the session of another worker."""
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
            # Forged ones do not use up anything.
            forged = envelopes.request((noisy.id, None), (one.id, None))
            assert (await other.post(forged)).status == 403
        accepted = 0
        for _ in range(25):  # the clock's minute may change once
            accepted += (await other.post(signed(noisy, (one.id, None)))).status == 202
        assert accepted in (10, 20)
        answer = await other.post(signed(FAR, (one.id, None)))
        assert answer.status == 202, "another twin of the same relay"


async def test_a_flood_from_one_address_503(start_relay) -> None:
    relay = start_relay(settings={"federation.requests_per_ip_per_s": "50"})
    (one,) = fresh_twins(1)
    statuses = []
    for _ in range(150):
        async with federation(relay.port) as other:
            statuses.append((await other.post(signed(FAR, (one.id, None)))).status)
    assert set(statuses) == {202, 503}
    refused = relay.counted("federation_inbound_refused_total", reason="address_limit")
    assert refused >= 0
    async with federation(relay.port) as other:

        async def accepted() -> bool:
            return (await other.post(signed(FAR, (one.id, None)))).status == 202

        await asyncio.sleep(1.1)
        assert await accepted()


async def test_a_failed_look_up_503(start_relay) -> None:
    relay = start_relay(settings={"twins.cache_s": "0.1"})
    (one,) = fresh_twins(1)
    with contextlib.closing(sqlite3.connect(relay.database_path())) as database:
        database.execute("ALTER TABLE relay_twins_twin RENAME TO out_of_reach")
    async with federation(relay.port) as other:
        await _refused_for_now(other, signed(FAR, (one.id, None)))


async def test_redis_away_503(start_server, start_relay) -> None:
    server = start_server(append_fsync="always")
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
        # Not remembered as accepted, so its repeat is taken.
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


# --- the batch form ------------------------------------------------------------------------------


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
    cases = list(_refused_envelopes().values())
    (one,) = fresh_twins(1)
    good = signed(FAR, (one.id, None))
    records, expected = [], []
    for number, (status, body, _) in enumerate(cases):
        content = body if isinstance(body, bytes) else body.SerializeToString()
        records.append(batch.Record(b"1-%d-0" % number, False, content))
        records.append(record(100 + number, good))
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
    async with federation(relay.port) as other:
        assert await other.deliver_batch(records) == (202,) * 5 + (503, 503, 202)
        assert len(queued(server, one)) == 5


async def test_what_is_no_batch(relay: RelayProcess) -> None:
    async with federation(relay.port) as other:
        assert (await other.post(b"", batch.PATH)).status == 400
        assert (await other.post(b"\x05abc", batch.PATH)).status == 400
        assert (await other.post(b"\x03\xff\xff\xff", batch.PATH)).status == 400
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


# --- repeats -------------------------------------------------------------------------------------


async def test_repeats_are_taken_once_over_a_restart_of_the_worker(
    start_server, start_relay
) -> None:
    server = start_server(append_fsync="always")
    relay = start_relay(server)
    (one,) = fresh_twins(1)
    sent = [signed(FAR, (one.id, None), b"%d" % n) for n in range(4)]
    async with federation(relay.port) as other:
        assert (await other.deliver(sent[0], "1-0-0")).status == 202
        assert (await other.deliver(sent[0], "1-0-0", retry=True)).status == 202
        records = [record(n, each) for n, each in enumerate(sent[1:], 1)]
        assert await other.deliver_batch(records[:2]) == (202, 202)
    relay.kill()
    relay.start()
    async with federation(relay.port) as other:
        again = [each._replace(retry=True) for each in records]
        assert await other.deliver_batch(again) == (208, 208, 202)
        assert (await other.deliver(sent[0], "1-0-0", retry=True)).status == 202
        # Another relay's, another name, another envelope: each is another message.
        assert (await other.deliver(sent[0], "1-0-0", relay_id="bb", retry=True)).status == 202
        assert (await other.deliver(sent[0], "1-9-0", retry=True)).status == 202
        assert (await other.deliver(sent[1], "1-0-0", retry=True)).status == 202
    assert queued(server, one) == [
        each.SerializeToString() for each in (*sent, sent[0], sent[0], sent[1])
    ]
    await eventually(lambda: relay.counted("federation_inbound_repeated_total") == 3)
    for key in server.run("KEYS", "federation:seen:*"):
        assert 0 < server.run("TTL", key) <= 660


async def test_a_repeat_while_the_first_is_under_way_is_not_taken(
    start_server, start_relay
) -> None:
    """The answer was lost because Redis hangs: the repeat must not be stored beside it."""
    server = start_server()
    relay = start_relay(server)
    (one,) = fresh_twins(1)
    envelope = signed(FAR, (one.id, None))
    async with federation(relay.port) as first, federation(relay.port) as second:
        assert (await first.post(signed(FAR, (one.id, None)))).status == 202
        server.pause()
        try:
            waiting = asyncio.create_task(first.deliver(envelope, "1-1-0"))
            await asyncio.to_thread(relay.get, "/live")
            answer = await second.deliver(envelope, "1-1-0", retry=True)
            assert (answer.status, answer.body) == (503, b"the same delivery is under way")
        finally:
            server.resume()
        assert (await waiting).status == 202
        assert (await second.deliver(envelope, "1-1-0", retry=True)).status == 202
    assert len(queued(server, one)) == 2


# --- partners ------------------------------------------------------------------------------------


async def test_trust_needs_name_and_address(start_server, start_relay) -> None:
    server = start_server()
    relay = start_relay(server)
    (one,) = fresh_twins(1)
    unsigned = envelopes.request((FAR.id, None), (one.id, None))
    near, far = "127.0.0.1:9", "192.0.2.1"
    async with federation(relay.port) as other:
        assert (await other.deliver(unsigned, relay=near)).status == 403
        decide(server, near, "trusted")
        decide(server, far, "trusted paused")

        async def trusted() -> bool:
            return (await other.deliver(unsigned, relay=near)).status == 202

        await eventually(trusted)
        assert (await other.deliver(unsigned)).status == 202, "the reference kind has no name"
        assert await other.deliver_batch([record(1, unsigned)], relay=near) == (202,)
        assert (await other.deliver(unsigned, relay=far)).status == 403, "calls from elsewhere"
        assert (await other.deliver(unsigned, relay="127.0.0.1:10")).status == 403
        unsigned.source.twin = UNKNOWN_TWIN.id
        assert (await other.deliver(unsigned, relay=near)).status == 403
        decide(server, near, "")

        async def not_trusted() -> bool:
            return (await other.deliver(unsigned, relay=near)).status == 403

        await eventually(not_trusted)


async def test_blocked_relays_are_refused(start_server, start_relay) -> None:
    server = start_server()
    relay = start_relay(server)
    one, local = fresh_twins(2)
    decide(server, FAR_DOMAIN, "blocked")
    here = (one.id, None)
    async with federation(relay.port) as other:

        async def refused() -> bool:
            return (await other.post(signed(FAR, here))).status == 403

        await eventually(refused)
        assert (await other.post(signed(BOTH_TWIN, here))).status == 403
        assert (await other.post(signed(PORT_DOMAIN_TWIN, here))).status == 202, "has another"
        assert (await other.post(signed(local, here))).status == 202
        assert (await other.deliver_batch([record(1, signed(FAR, here))])) == (403,)
    async with federation(relay.port) as other:
        answer = await other.deliver(signed(local, here), relay=FAR_DOMAIN)
        assert (answer.status, answer.body) == (403, b"relay is blocked")


async def test_a_banned_twin_is_refused(start_server, start_relay) -> None:
    server = start_server()
    relay = start_relay(server)
    one, two = fresh_twins(2)
    server.run("HSET", "relay:control", f"ban:{one.id}", "spam")
    server.run("HINCRBY", "relay:control", "version", 1)
    async with federation(relay.port) as other:

        async def refused() -> bool:
            return (await other.post(signed(one, (two.id, None)))).status == 403

        await eventually(refused)
        answer = await other.post(signed(FAR, (one.id, None)))
        assert (answer.status, answer.body) == (403, b"twin is banned")


async def test_partners_are_heard_and_counted(start_server, start_relay) -> None:
    server = start_server()
    relay = start_relay(server)
    one, local = fresh_twins(2)
    here = (one.id, None)
    now = server.run("TIME")[0]
    async with federation(relay.port) as other:
        for number in range(3):
            assert (await other.post(signed(FAR, here, b"%d" % number))).status == 202
        sent = signed(PORT_DOMAIN_TWIN, here)
        assert (await other.deliver(sent, relay="127.0.0.1:8080")).status == 202
        assert (await other.deliver(sent, relay=FAR_DOMAIN)).status == 202
        assert (await other.deliver(sent, relay="liar.example")).status == 202
        assert (await other.deliver(signed(local, here), relay="liar.example")).status == 202
        forged = envelopes.request((FAR.id, None), here)
        assert (await other.deliver(forged, relay=FAR_DOMAIN)).status == 403
    first = PORT_DOMAIN_TWIN.relays.split("_")[0]
    await eventually(lambda: server.run("HGET", f"federation:relay:{FAR_DOMAIN}", "received"))
    await eventually(
        lambda: server.run("HGET", f"federation:relay:{FAR_DOMAIN}", "received") == b"4"
    )
    assert server.run("HGET", f"federation:relay:{first}", "received") == b"2"
    assert float(server.run("HGET", f"federation:relay:{FAR_DOMAIN}", "heard")) >= now
    assert server.run("SMEMBERS", "federation:relays") == {FAR_DOMAIN.encode(), first.encode()}

"""Messages that are traced through real relays."""

from __future__ import annotations

import time

from proto.rmb.stamp import deadline
from relay.queues.keys import failures
from relay.trace.events import Event
from relay.trace.orders import Kind
from relay.trace.timeline import timeline
from tests.e2e.conftest import Trio
from tests.support.envelopes import new_uid
from tests.support.federated import World
from tests.support.relay_process import RelayProcess
from tests.support.rmb_client import session, signing_session
from tests.support.tracing import figures, noted, publish, raw, stages, traced, until
from tests.support.waiting import eventually, fresh_window
from tests.support.world import fresh_twins

DELIVERED = ["accepted", "committed", "delivered", "acknowledged", "removed"]


async def test_a_message_from_session_to_session(relay: RelayProcess) -> None:
    one, two = fresh_twins(2)
    server, uid = relay.redis, new_uid()
    order = publish(server, Kind.UID, uid)
    await traced(relay)
    async with session(relay.url, one) as here, session(relay.url, two, "phone") as there:
        await here.request((two.id, "phone"), b"not followed")
        await here.request((two.id, "phone"), b"a secret payload", uid=uid, tags="a secret tag")
        await there.receive_many(2)
        events = await until(server, order, "removed")
    assert stages(events) == DELIVERED
    assert {event.uid for event in events} == {uid}
    assert {(event.source, event.destination) for event in events} == {
        (str(one.id), f"{two.id}:phone")
    }
    accepted, committed, delivered, acknowledged, removed = events
    assert accepted.kind == "request" and accepted.size_bytes > len(b"a secret payload")
    assert committed.batch > 0
    assert committed.entry == delivered.entry == acknowledged.entry == removed.entry != ""
    assert delivered.epoch > 0
    assert sorted(event.at for event in events) == [event.at for event in events]
    assert not any(b"secret" in each for each in raw(server, order))
    server.run("HDEL", "relay:control", f"trace:{order.id}")
    server.run("HINCRBY", "relay:control", "version", 1)
    await traced(relay, False)


async def test_one_that_waits_for_an_absent_session(relay_pair: RelayProcess) -> None:
    """A waiting message is drained later by the worker that then holds the session."""
    one, two = fresh_twins(2)
    server = relay_pair.redis
    order = publish(server, Kind.SESSION, f"{two.id}:")
    await traced(relay_pair)
    async with session(relay_pair.url, one) as here:
        sent = await here.request((two.id, ""))
        await here.request((two.id, None))  # another session
        await here.barrier()
        waiting = await until(server, order, "queued")
        assert stages(waiting) == ["waits", "accepted", "committed", "queued"]
        assert waiting[-1].reason == "not_connected_here"
        async with session(relay_pair.url, two, "") as there:
            await there.receive()
            events = await until(server, order, "removed")
    assert {event.uid for event in events} == {sent.uid}
    (leg,) = timeline(sent.uid, events).legs
    assert [step.event.stage for step in leg.steps] == [
        *("waits", "accepted", "committed", "queued", "delivered", "acknowledged", "removed")
    ]
    assert leg.outcome == "delivered"


async def test_refused_and_expired(start_relay) -> None:
    relay = start_relay(settings={"limits.count": "3", "limits.size": "1000000"})
    one, two = fresh_twins(2)
    order = publish(relay.redis, Kind.TWIN, str(one.id))
    await traced(relay)
    await fresh_window(10)
    async with session(relay.url, one) as here:
        sent = [await here.request((two.id, None), expiration=2) for _ in range(5)]
        refused = await here.receive_many(2)
        assert {notice.uid for notice in refused} == {each.uid for each in sent[3:]}
        deadlines = [deadline(each.timestamp, each.expiration) for each in sent]
        await eventually(lambda: time.time() >= max(deadlines), what="their deadlines")
        async with session(relay.url, two):
            await here.receive_many(3)
        events = await until(relay.redis, order, "notified", 5)
    refused_one = [event for event in events if event.uid == sent[4].uid]
    assert stages(refused_one) == ["refused", "notified"]
    assert refused_one[0].reason == "limit_count"
    expired = [event for event in events if event.uid == sent[0].uid]
    assert stages(expired) == ["waits", "accepted", "committed", "queued", "expired", "notified"]
    (leg,) = timeline(sent[0].uid, events).legs
    assert leg.outcome == "expired"


async def test_a_busy_twin_is_sampled_and_capped(start_relay) -> None:
    """A traced message has all its stages, others are counted, and the order ends by itself."""
    relay = start_relay()
    one, two = fresh_twins(2)
    capped = publish(relay.redis, Kind.TWIN, str(one.id), events_per_s=20, lifetime_s=8)
    sampled = publish(
        relay.redis, Kind.TWIN, str(two.id), sample=0.2, lifetime_s=8, events_per_s=2000
    )
    await traced(relay)
    async with session(relay.url, one) as here, session(relay.url, two) as there:
        sent = [await here.request(there.key, b"payload %d" % number) for number in range(1000)]
        await there.receive_many(1000)
        await traced(relay, False)
        kept = len(noted(relay.redis, capped))
        await here.request(there.key)
        await there.receive()
        await here.barrier()
        assert len(noted(relay.redis, capped)) == kept, "it has ended"
    counted = figures(relay.redis, capped)
    assert counted["events"] == kept and "lost" not in counted
    followed = {event.uid for event in noted(relay.redis, capped)}
    assert 0 < len(followed) < 200
    assert counted["skipped"] == 1000 - len(followed)
    for uid in followed:
        assert stages(noted(relay.redis, capped, uid)) == DELIVERED
    chosen = {event.uid for event in noted(relay.redis, sampled)}
    assert chosen == {each.uid for each in sent if sampled.samples(each.uid)}
    assert 120 < len(chosen) < 280
    assert not any(b"payload" in each for each in raw(relay.redis, sampled))


async def test_redis_out_of_memory_ends_a_trace(start_relay) -> None:
    relay = start_relay()
    one, two = fresh_twins(2)
    order = publish(relay.redis, Kind.TWIN, str(one.id))
    await traced(relay)
    async with session(relay.url, one) as here:
        relay.redis.run("CONFIG", "SET", "maxmemory", 1 << 20)
        await here.request((two.id, None))
        await eventually(
            lambda: not relay.redis.run("HEXISTS", "relay:control", f"trace:{order.id}"),
            what="the order to be taken back",
        )
        relay.redis.run("CONFIG", "SET", "maxmemory", 0)
        await here.barrier()
    await traced(relay, False)


async def test_a_trace_goes_on_when_the_relay_starts_again(start_relay, start_server) -> None:
    server = start_server(append_fsync="no")
    relay = start_relay(server)
    one, two = fresh_twins(2)
    order = publish(server, Kind.TWIN, str(two.id))
    await traced(relay)
    relay.stop()
    relay.start()
    await traced(relay)
    async with session(relay.url, one) as here:
        await here.request((two.id, None))
        await until(server, order, "queued")


async def test_through_two_relays(trio: Trio, world: World) -> None:
    """Both relays that see a message record it; the trace shows the relay that accepted it."""
    (gone,) = world.partner_ports()
    a, b = trio["a"], trio["b"]
    (one,) = world.twins("a", 1)
    (two,) = world.twins("b", 1)
    (away,) = world.twins(f"127.0.0.1:{gone}", 1)
    uid, lost = new_uid("federated"), new_uid("lost")
    orders = {relay: publish(relay.store, Kind.UID, uid) for relay in (a, b)}
    order = publish(a.store, Kind.UID, lost)
    (other,) = world.twins("a", 1)
    of_other = publish(a.store, Kind.TWIN, str(other.id))
    for relay in (a, b):
        await traced(relay)
    async with (
        signing_session(a.url, one, "phone") as here,
        signing_session(b.url, two) as there,
    ):
        await here.request(there.key, b"over there", uid=uid)
        await there.receive()
        out = await until(a.store, orders[a], "tried")
        there_noted = await until(b.store, orders[b], "removed")
        await here.request((away.id, None), uid=lost, expiration=5)
        tried = await until(a.store, order, "tried", 2)
        assert "connect" in tried[-1].answer or "refused" in tried[-1].answer
        given_up = await until(a.store, order, "notified")
        given_up = [event for event in given_up if event.kind == "request"]
        assert stages(given_up)[:3] == ["waits", "accepted", "outbox"]
        assert stages(given_up)[-3:] == ["expired", "given_up", "notified"]
        assert (await here.receive()).error.message == "message has expired"
    assert stages(out) == ["waits", "accepted", "outbox", "tried"]
    assert (out[-1].relay, out[-1].answer) == (b.domain, "answered 202")
    assert there_noted[0].relay == a.domain and there_noted[0].here == b.domain
    (leg,) = timeline(uid, [*there_noted, *out]).legs
    assert [(step.event.here, step.event.stage) for step in leg.steps] == [
        *((a.domain, stage) for stage in ("waits", "accepted", "outbox", "tried")),
        *((b.domain, stage) for stage in DELIVERED),
    ]
    assert leg.outcome == "delivered"
    # b has failed more often than the relay without a server, so that one is tried first. A drainer
    # may learn of it with the first message only.
    for number in range(5):
        a.store.run("ZADD", failures(b.domain), time.time(), f"a test {number}")
    ways = []
    async with signing_session(a.url, other) as here:
        for absent in world.twins(f"{world.nowhere}_b", 2):
            sent = await here.request((absent.id, None))

            def taken(uid: str = sent.uid) -> list[Event]:
                events = noted(a.store, of_other, uid)
                return events if "answered 202" in [each.answer for each in events] else []

            events = await eventually(taken, 20, "b to take it")
            ways.append([(each.relay, each.answer) for each in events if each.stage == "tried"])
            assert timeline(sent.uid, events).legs[0].outcome == f"accepted by {b.domain}"
    (first, answer), last = max(ways, key=len)
    assert (first, last) == (world.nowhere, (b.domain, "answered 202"))
    assert "connect" in answer or "refused" in answer

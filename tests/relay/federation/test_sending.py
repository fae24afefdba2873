"""Messages to partner relays that work: both request forms, order, and what a drainer leaves."""

from __future__ import annotations

import asyncio
import json

from proto.federation import batch
from relay.queues import keys
from tests.relay.federation.conftest import OWN_DOMAIN, Make, Outgoing
from tests.support.partner_server import partner
from tests.support.waiting import eventually


async def test_the_first_message_is_single_and_then_batches_go(out: Outgoing) -> None:
    async with partner(offers=True) as other:
        twins = [out.twin(number, other.domain) for number in range(100, 110)]
        await out.start()
        out.put(twins[0], "first")
        await eventually(lambda: other.uids == ["first"])
        for number in range(200):
            out.put(twins[number % 10], f"{number}")
        await eventually(lambda: len(other.taken) == 201)
        await eventually(out.empty)
        paths = [each.path for each in other.requests]
        assert paths[0] == "/" and set(paths[1:]) == {batch.PATH}
        assert all(each.headers["rmb-relay"] == OWN_DOMAIN for each in other.requests)
        for twin in twins:
            got = [e.uid for e in other.taken[1:] if e.destination.twin == twin]
            assert got == [f"{n}" for n in range(200) if twins[n % 10] == twin]
        assert not any(delivery.retry for delivery in other.messages)
        await eventually(lambda: out.partner(other.domain).get("sent") == "201")
        assert out.partner(other.domain)["kind"] == "ours"
        assert not out.dead() and not out.notices()


async def test_deliveries_are_named_after_relay_shard_and_entry(out: Outgoing) -> None:
    async with partner(offers=True) as other:
        twin = out.twin(11, other.domain)
        entries = [out.put(twin) for _ in range(3)]
        await out.start(3)
        await eventually(lambda: len(other.taken) == 3)
        assert [each.id for each in other.messages] == [f"3-{entry}" for entry in entries]
        relay_id = out.client.get(keys.FEDERATION_ID).decode()
        assert other.requests[0].headers["rmb-delivery"] == f"{relay_id}/3-{entries[0]}"


async def test_without_the_batch_form_there_is_none(make: Make) -> None:
    out = make(batch=False)
    async with partner(offers=True) as other:
        twin = out.twin(11, other.domain)
        for _ in range(5):
            out.put(twin)
        await out.start(3)
        await eventually(out.empty)
        assert {each.path for each in other.requests} == {"/"}
        assert len(other.taken) == 5


async def test_a_relay_that_forgot_the_batch_form_gets_single_ones(out: Outgoing) -> None:
    async with partner(offers=True) as other:
        twin = out.twin(11, other.domain)
        await out.start(3)
        for number in range(2):
            out.put(twin, f"{number}")
        await eventually(lambda: len(other.taken) == 2)
        await eventually(out.empty)
        assert out.partner(other.domain)["kind"] == "ours"
        other.offers = False  # as after a downgrade to an older release
        for number in range(2, 20):
            out.put(twin, f"{number}")
        await eventually(lambda: len(other.taken) == 20)
        await eventually(out.empty)
        assert other.uids == [f"{number}" for number in range(20)]
        assert "kind" not in out.partner(other.domain)
        assert not out.partner(other.domain).get("failures")


async def test_one_request_at_a_time_for_each_twin_in_the_single_form(out: Outgoing) -> None:
    async with partner() as other:
        twins = [out.twin(number, other.domain) for number in (8, 16, 24)]
        other.gate.clear()
        for number in range(30):
            out.put(twins[number % 3], f"{number}")
        await out.start(0)
        await eventually(lambda: len(other.requests) == 3)
        await asyncio.sleep(0.05)
        assert len(other.requests) == 3
        other.gate.set()
        await eventually(out.empty)
        for at, twin in enumerate(twins):
            got = [e.uid for e in other.taken if e.destination.twin == twin]
            assert got == [f"{n}" for n in range(at, 30, 3)]


async def test_a_message_too_large_for_a_batch_goes_alone_and_in_its_place(out: Outgoing) -> None:
    async with partner(offers=True) as other:
        twin = out.twin(11, other.domain)
        await out.start(3)
        out.put(twin, "opens")
        await eventually(out.empty)
        out.put(
            twin,
            "1",
        )
        out.put(twin, "2", payload=None, tags="x" * (5 << 20))
        out.put(twin, "3")
        await eventually(out.empty)
        assert other.uids == ["opens", "1", "2", "3"]
        assert [each.path for each in other.requests].count("/") == 2


async def test_a_batch_stays_within_its_bounds(out: Outgoing) -> None:
    async with partner(offers=True) as other:
        twins = [out.twin(number, other.domain) for number in range(8, 8 * 30, 8)]
        out.put(twins[0], "opens")
        await out.start(0)
        await eventually(out.empty)
        other.gate.clear()
        out.put(twins[0], "holds")
        out.put(twins[1], "holds too")
        await eventually(lambda: len(other.requests) >= 2)
        for number in range(1500):
            out.put(twins[number % len(twins)], f"{number}", tags="x" * 4000)
        other.gate.set()
        await eventually(out.empty)
        sizes = [len(each.body) for each in other.requests]
        assert max(sizes) <= batch.MAX_BODY_BYTES
        assert len(other.taken) == 1503


async def test_a_refused_message_stops_its_lane_only(out: Outgoing) -> None:
    async with partner(offers=True) as other:
        slow, fast = out.twin(8, other.domain), out.twin(16, other.domain)
        out.put(fast, "opens")
        await out.start(0)
        await eventually(out.empty)
        full = True
        other.status = lambda envelope: 503 if full and envelope.destination.twin == slow else 202
        for number in range(5):
            out.put(slow, f"s{number}")
            out.put(fast, f"f{number}")
        await eventually(lambda: len(other.uids) == 6)
        assert "failures" not in out.partner(other.domain)
        name = keys.tries(0, out.client.xrange(keys.outbox(0))[0][0].decode())
        await eventually(lambda: out.client.exists(name))
        first = json.loads(out.client.lindex(name, 0))
        assert first["relay"] == other.domain and first["answer"] == "answered 503"
        full = False
        await eventually(out.empty)
        assert [uid for uid in other.uids if uid[0] == "s"] == [f"s{n}" for n in range(5)]
        assert not out.client.keys("federation:tries:*")


async def test_twins_that_moved_here_get_their_mail_here(out: Outgoing) -> None:
    twin = out.twin(11, OWN_DOMAIN, "other.example")
    watcher = out.client.pubsub()
    watcher.subscribe(keys.wake("11:sid"))
    watcher.get_message(timeout=1)
    out.put(twin, "moved", connection="sid")
    await out.start(3)
    await eventually(out.empty)
    assert [envelope.uid for envelope in out.notices("11:sid")] == ["moved"]
    assert watcher.get_message(timeout=1)["data"] == b"new"
    watcher.close()
    assert 0 < out.client.ttl(keys.stream("11:sid")) <= 7200
    assert not out.dead()


async def test_a_drainer_leaves_when_told_and_its_successor_goes_on(out: Outgoing) -> None:
    async with partner(offers=True) as other:
        twin = out.twin(11, other.domain)
        await out.start(3)
        out.put(twin, "1")
        await eventually(out.empty)
        other.status = lambda envelope: 503
        out.put(twin, "2")
        await eventually(lambda: len(other.messages) == 2)
        assert await out.stop() == [True]
        assert not out.client.exists(keys.lease(3))
        other.status = lambda envelope: 202
        await out.start(3)
        await eventually(out.empty)
        assert other.uids == ["1", "2"]
        assert not any(delivery.retry for delivery in other.messages)
        assert await out.stop() == [False]


async def test_a_shard_has_one_drainer(make: Make) -> None:
    first, second = make(), make()
    async with partner() as other:
        for out in (first, second):
            out.twin(11, other.domain)
        await first.start(3)
        await eventually(lambda: first.client.exists(keys.lease(3)))
        await second.start(3)
        assert await second.drains[0] is False
        for number in range(10):
            first.put(11, f"{number}")
        await eventually(first.empty)
        assert other.uids == [f"{number}" for number in range(10)]

"""Failures of partner relays and of other parts: no message is lost and none is delivered twice."""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from pathlib import Path

import pytest
import redis

from relay.federation.destination import SINGLE_FROM
from relay.queues import keys
from tests.relay.federation.conftest import Make, Outgoing
from tests.support.federation_client import decide
from tests.support.partner import Delivery, respond, silence
from tests.support.partner_server import PartnerServer, partner
from tests.support.redis_servers import RedisServer, start_valkey
from tests.support.stream_server import stream_server
from tests.support.tcp_proxy import Flow, tcp_proxy
from tests.support.waiting import eventually


async def opened(out: Outgoing, other: PartnerServer, twin: int, shard: int) -> None:
    """Send a first message, so that the sender knows the relay's kind."""
    out.put(twin, "opens")
    await out.start(shard)
    await eventually(out.empty)


@pytest.mark.parametrize("offers", [False, True])
@pytest.mark.parametrize("status", [408, 425, 429, 500, 503, 200, 302])
async def test_a_relay_that_fails_gets_three_passes_and_then_a_pause(
    out: Outgoing, offers: bool, status: int
) -> None:
    async with partner(offers) as other:
        twin = out.twin(9, other.domain)
        await opened(out, other, twin, 1)
        times: list[float] = []

        async def answer(delivery: Delivery, writer: asyncio.StreamWriter) -> None:
            times.append(time.time())
            writer.write(respond(status, b"sorry"))

        other.answer = answer
        entry = out.put(twin, "waits")
        await eventually(lambda: out.partner(other.domain).get("failures") == "3")
        first, second, third = times
        # The upper bounds allow for a busy machine; the pause after the passes is longer.
        assert 0.1 <= second - first < 2 and 0.2 <= third - second < 2
        state = out.partner(other.domain)
        assert 3.0 <= float(state["retry_at"]) - third < 6
        assert float(state["last_failure"]) >= third - 0.001
        assert out.client.zcard(keys.failures(other.domain)) == 3
        tries = [json.loads(t) for t in out.client.lrange(keys.tries(1, entry), 0, -1)]
        assert len(tries) == 3 and {each["relay"] for each in tries} == {other.domain}
        assert out.client.ttl(keys.tries(1, entry)) > 86_000
        other.answer = None
        # The relay was heard, which ends the back-off.
        out.client.hset(keys.partner(other.domain), "heard", f"{time.time():.3f}")
        await eventually(lambda: other.uids == ["opens", "waits"])
        await eventually(out.empty)
        assert "failures" not in out.partner(other.domain)
        assert not out.client.exists(keys.tries(1, entry))
        assert out.client.hget(keys.FEDERATION_COUNTERS, f"error|{other.domain}") == b"3"


async def test_a_busy_relay_is_asked_again_when_it_says(out: Outgoing) -> None:
    async with partner() as other:
        twin, neighbour = out.twin(9, other.domain), out.twin(17, other.domain)
        other.headers = {"retry_after": "1"}
        other.status = lambda e: 503 if e.uid == "busy" and len(other.messages) < 2 else 202
        out.put(twin, "busy")
        await out.start(1)
        await eventually(lambda: other.messages)
        refused = time.time()
        out.put(neighbour, "goes")
        await eventually(lambda: other.uids == ["goes"])
        await eventually(lambda: other.uids == ["goes", "busy"])
        assert 0.9 < time.time() - refused < 2.0
        assert "failures" not in out.partner(other.domain)


async def test_the_next_relay_is_tried_at_once_and_kept(out: Outgoing) -> None:
    async with partner() as bad, partner(offers=True) as good:
        twin = out.twin(9, bad.domain, good.domain)
        bad.status = lambda envelope: 500
        # This older failure gives `good` the better rank.
        out.client.zadd(keys.failures(good.domain), {"old": time.time() - 100})
        started = time.time()
        out.put(twin, "0")
        await out.start(1)
        await eventually(lambda: good.uids == ["0"])
        assert time.time() - started < 1.0
        assert len(bad.messages) == 1
        for number in range(1, 50):
            out.put(twin, f"{number}")
        await eventually(out.empty)
        assert good.uids == [f"{number}" for number in range(50)]
        assert len(bad.messages) == 1


async def test_a_twin_loses_its_relays_one_after_the_other(out: Outgoing) -> None:
    async with partner(True) as one, partner() as two, partner(True) as three:
        relays = {server.domain: server for server in (one, two, three)}
        twin = out.twin(9, *relays)
        await out.start(1)
        sent, used = 0, []
        while relays:
            for _ in range(20):
                out.put(twin, f"{sent}")
                sent += 1
            await eventually(out.empty)
            domain = next(d for d, server in relays.items() if server.taken)
            used.append(relays.pop(domain))
            await used[-1].stop()
        got = [uid for server in used for uid in server.uids]
        assert got == [f"{number}" for number in range(sent)]
        out.put(twin, "waits")
        await used[1].start()
        await eventually(lambda: used[1].uids[-1] == "waits")


async def test_ranks_are_shared_by_processes(make: Make) -> None:
    first, second = make(), make()
    async with partner() as bad, partner() as good:
        for out in (first, second):
            for number in range(1, 9):
                out.twin(number, bad.domain, good.domain)
        bad.status = lambda envelope: 500
        first.client.zadd(keys.failures(good.domain), {"old": time.time()})
        await first.start(1, 2, 3, 4)
        for number in (1, 2, 3, 4):
            first.put(number)
        await eventually(first.empty)
        failed = len(bad.messages)
        assert failed >= 1
        first.client.zrem(keys.failures(good.domain), "old")
        for domain in (bad.domain, good.domain):
            first.client.hdel(keys.partner(domain), "failures", "retry_at")
        bad.status = lambda envelope: 202
        await second.start(5, 6, 7, 0)
        for number in (5, 6, 7, 8):
            second.put(number)
        await eventually(second.empty)
        assert len(bad.messages) == failed, "the one that failed comes last"
        assert len(good.taken) == 8


async def test_an_answer_that_is_lost_doubles_nothing_between_our_kind(out: Outgoing) -> None:
    async with partner(offers=True) as other:
        twins = [out.twin(number, other.domain) for number in (9, 17, 25)]
        await opened(out, other, twins[0], 1)

        async def answer(delivery: Delivery, writer: asyncio.StreamWriter) -> None:
            """Take all messages, but send no answer."""
            other.answer = None
            other.judge(delivery)
            await silence(delivery, writer)

        other.answer = answer
        for number in range(30):
            out.put(twins[number % 3], f"{number}")
        await eventually(out.empty)
        assert sorted(other.uids[1:], key=int) == [f"{number}" for number in range(30)]
        again = [each for each in other.messages if each.retry]
        assert again and {each.status for each in again} == {208}


async def test_a_dead_relay_does_not_slow_a_live_one(out: Outgoing) -> None:
    async with partner(offers=True) as live, partner(offers=True) as dead:
        dead.gate.clear()  # it accepts connections and answers nothing
        stuck = [out.twin(8 * number, dead.domain) for number in range(1, 101)]
        fast = out.twin(8 * 200, live.domain)
        await opened(out, live, fast, 0)
        alone = await latencies_s(out, live, fast)
        for number in range(6000):
            out.put(stuck[number % 100], f"d{number}")
        # The drainer could not read while they were put in, and another message waits for that.
        out.put(fast, "after them")
        await eventually(lambda: live.uids[-1] == "after them")
        beside = await latencies_s(out, live, fast)
        # The margin allows for a busy machine; waiting for the dead relay would take 3 s each.
        assert statistics.median(beside) < 2 * statistics.median(alone) + 0.02
        assert max(beside) < out.options.timeout_s / 2
        assert not dead.taken


async def test_mail_of_dead_relays_keeps_no_other_from_being_read(out: Outgoing) -> None:
    """A live relay gets its message although four dead relays have full queues.

    Each dead relay has as many messages as one twin may have waiting.
    """
    async with partner(offers=True) as live:
        fast = out.twin(8, live.domain)
        for number in range(1, 5):
            twin = out.twin(8 + 8 * number, f"127.0.0.1:{number}")
            out.put_many(twin, (f"{n}" for n in range(26_000)))
        out.put(fast, "after them")
        await out.start(0)
        await eventually(lambda: live.uids == ["after them"])
        (shard,) = out.sender._shards
        kept = sum(len(lane.entries) for lane in shard.lanes.values())
        assert kept < 10_000 < 104_000 <= kept + sum(len(e.notes) for e in shard.lanes.values())


async def test_mail_that_was_only_noted_goes_in_its_order(out: Outgoing) -> None:
    async with partner(offers=True) as other:
        twins = [out.twin(8 * number, other.domain) for number in range(1, 5)]
        await other.stop()
        out.client.set(keys.left(0), "?")  # any of the messages may have been accepted
        for number in range(500):
            out.put(twins[number % 4], f"{number}")
        await out.start(0)
        await eventually(lambda: out.partner(other.domain).get("failures", "0") >= "3")
        for number in range(500, 1000):
            out.put(twins[number % 4], f"{number}")
        (shard,) = out.sender._shards
        await eventually(lambda: sum(len(lane.notes) for lane in shard.lanes.values()) > 900)
        await out.stop()
        assert out.client.get(keys.left(0)).count(b" ") == 499
        await out.start(0)
        await other.start()
        out.client.hset(keys.partner(other.domain), "heard", f"{time.time():.3f}")
        await eventually(out.empty)
        assert len(other.taken) == 1000
        for at, twin in enumerate(twins):
            got = [e for e in other.messages if e.envelope.destination.twin == twin]
            assert [e.envelope.uid for e in got] == [f"{n}" for n in range(at, 1000, 4)]
            assert all(e.retry == (int(e.envelope.uid) < 500) for e in got)


async def latencies_s(out: Outgoing, other: PartnerServer, twin: int) -> list[float]:
    """Return the delivery times of 100 messages that are sent one at a time, in seconds."""
    found = []
    for _ in range(100):
        started, taken = time.monotonic(), len(other.taken)
        out.put(twin)
        await eventually(lambda taken=taken: len(other.taken) > taken)
        found.append(time.monotonic() - started)
    return found


async def test_a_backlog_is_drained_in_order_when_the_relay_is_back(out: Outgoing) -> None:
    async with partner(offers=True) as other:
        twins = [out.twin(number, other.domain) for number in range(1, 41)]
        await other.stop()
        for number in range(8000):
            out.put(twins[number % 40], f"{number}")
        await out.start()
        await eventually(lambda: out.partner(other.domain).get("failures", "0") >= "3")
        assert out.client.hget(keys.held(other.domain), "total")
        await other.start()
        out.client.hset(keys.partner(other.domain), "heard", f"{time.time():.3f}")
        await eventually(out.empty)
        assert len(other.taken) == 8000
        for at, twin in enumerate(twins):
            got = [e.uid for e in other.taken if e.destination.twin == twin]
            assert got == [f"{number}" for number in range(at, 8000, 40)]


async def test_garbage_in_place_of_statuses(out: Outgoing) -> None:
    async with partner(offers=True) as other:
        twin = out.twin(9, other.domain)
        await opened(out, other, twin, 1)

        async def answer(delivery: Delivery, writer: asyncio.StreamWriter) -> None:
            other.answer = None
            writer.write(respond(200, b"x" * 10_000))

        other.answer = answer
        for number in range(5):
            out.put(twin, f"{number}")
        await eventually(out.empty)
        assert other.uids[1:] == [f"{number}" for number in range(5)]
        assert "failures" not in out.partner(other.domain)


@pytest.mark.parametrize("status", [200, 302, 500])
async def test_a_relay_without_the_batch_form_may_answer_anything(
    out: Outgoing, status: int
) -> None:
    """The sender returns to single messages, as needed where another program replaced the relay."""
    async with partner(offers=True) as other:
        twin = out.twin(9, other.domain)
        await opened(out, other, twin, 1)
        other.offers = False

        async def answer(delivery: Delivery, writer: asyncio.StreamWriter) -> None:
            if delivery.batched:
                writer.write(respond(status, b"no such page"))
            else:
                await other.take(delivery, writer)

        other.answer = answer
        out.put(twin, "goes")
        await eventually(lambda: other.uids == ["opens", "goes"])
        await eventually(out.empty)
        assert [request.batched for request in other.requests] == [False, True, True, True, False]
        await eventually(lambda: "kind" not in out.partner(other.domain))


async def test_batches_that_fail_hold_up_nothing_where_they_are_offered(out: Outgoing) -> None:
    async with partner(offers=True) as other:
        twin = out.twin(9, other.domain)
        await opened(out, other, twin, 1)

        async def answer(delivery: Delivery, writer: asyncio.StreamWriter) -> None:
            if delivery.batched:
                writer.write(respond(500))
            else:
                await other.take(delivery, writer)

        other.answer = answer
        for number in range(50):
            out.put(twin, f"{number}")
        await eventually(out.empty)
        assert other.uids[1:] == [f"{number}" for number in range(50)]
        assert sum(request.batched for request in other.requests) == SINGLE_FROM


async def test_a_drainer_without_its_lease_sends_nothing(out: Outgoing) -> None:
    async with partner() as other:
        twin = out.twin(9, other.domain)
        await opened(out, other, twin, 1)
        out.client.set(keys.lease(1), "somebody else", px=60_000)
        # The drainer notices this at the next renewal at the latest, before its lease would expire.
        await eventually(lambda: out.drains[0].done())
        out.put(twin, "not ours")
        await asyncio.sleep(0.2)
        assert other.uids == ["opens"]
        assert out.client.get(keys.lease(1)) == b"somebody else"


async def test_what_a_dead_drainer_had_is_sent_as_a_repeat(out: Outgoing) -> None:
    async with partner(offers=True) as other:
        twin = out.twin(9, other.domain)
        out.client.set(keys.left(1), "?")  # it started, and did not record how it ended
        out.put(twin, "before")
        out.put(twin, "before too")
        await out.start(1)
        await eventually(out.empty)
        out.put(twin, "after")
        await eventually(out.empty)
        assert [each.retry for each in other.messages] == [True, True, False]


async def test_redis_restarts_under_a_drainer(make: Make, tmp_path: Path) -> None:
    server = start_valkey(tmp_path, append_fsync="no")
    try:
        out = make(server=server)
        async with partner(offers=True) as other:
            twin = out.twin(9, other.domain)
            await opened(out, other, twin, 1)
            other.gate.clear()
            out.put(twin, "under way")
            await eventually(lambda: len(other.requests) == 2)
            server.kill()
            other.gate.set()
            await eventually(lambda: len(other.taken) == 2)
            server.restart()
            await eventually(out.empty)
            out.put(twin, "after")
            await eventually(lambda: other.uids == ["opens", "under way", "after"])
            await eventually(out.empty)
            assert not any(each.retry for each in other.messages)
        await out.close()
    finally:
        server.remove()


async def test_the_outbox_is_drained_when_redis_is_out_of_memory(
    make: Make, tmp_path: Path
) -> None:
    server = start_valkey(tmp_path, "--maxmemory", "20mb")
    try:
        out = make(server=server)
        async with partner(offers=True) as other:
            twin, gone = out.twin(9, other.domain), 17
            await out.start(1)
            await out.stop()
            for number in range(50):
                out.put(twin, f"{number}")
            out.put(gone, "nobody")
            with pytest.raises(redis.exceptions.OutOfMemoryError):
                while True:
                    out.client.rpush("junk", b"x" * 100_000)
            await out.start(1)
            await eventually(out.empty)
            assert other.uids == [f"{number}" for number in range(50)]
            assert [notice.uid for notice in out.notices()] == ["nobody"]
        await out.close()
    finally:
        server.remove()


async def test_operators_are_heard_after_an_error_of_redis(out: Outgoing) -> None:
    async with partner() as other:
        twin = out.twin(9, other.domain)
        await opened(out, other, twin, 1)
        out.client.config_resetstat()
        out.client.set(keys.CONTROL, "no hash")
        await eventually(lambda: "errorstat_WRONGTYPE" in out.client.info("errorstats"))
        out.client.delete(keys.CONTROL)
        decide(out.server, other.domain, "paused")
        partners = out.sender.partners
        await eventually(lambda: partners.get(other.domain).paused)
        out.put(twin, "waits")
        decide(out.server, other.domain, "")
        await eventually(lambda: other.uids == ["opens", "waits"])


async def test_operators_are_heard_when_redis_goes_away_meanwhile(
    make: Make, valkey: RedisServer
) -> None:
    """A decision takes effect even if the connection ends between its announcement and its read."""
    async with partner() as other, tcp_proxy(("127.0.0.1", valkey.port)) as proxy:
        out = make()
        out.options = out.options._replace(redis_url=f"redis://127.0.0.1:{proxy.port}/0")
        twin = out.twin(8, other.domain)
        await opened(out, other, twin, 0)
        cuts: list[bytes] = []

        def cut(flow: Flow, data: bytes) -> int | None:
            if cuts or keys.partner(other.domain).encode() not in data or b"HGETALL" not in data:
                return None
            cuts.append(data)
            return 0

        proxy.interceptor = cut
        decide(valkey, other.domain, "paused")
        await eventually(lambda: cuts)
        await eventually(lambda: out.sender.partners.get(other.domain).paused)
        await out.stop()


async def test_the_source_of_twins_is_away_for_a_while(out: Outgoing) -> None:
    async with partner() as other:
        out.twin(9, other.domain)
        out.twins.away = True
        out.put(9, "waits")
        await out.start(1)
        await out.twins.asked_times(2)
        assert not other.requests and not out.dead()
        out.twins.away = False
        await eventually(lambda: other.uids == ["waits"])


async def test_a_relay_that_is_no_domain_is_never_asked(out: Outgoing) -> None:
    async with partner() as other:
        twin = out.twin(9, f"user@{other.domain}", f"{other.domain}/path?x=")
        out.put(twin, "waits")
        await out.start(1)
        await eventually(lambda: out.notices())
        assert [each.error.message for each in out.notices()] == ["twin lists no usable relay"]
        assert [each["why"] for each in out.dead()] == [b"no_usable_relay"]
        assert not other.requests


async def test_what_is_no_domain_is_passed_over(out: Outgoing) -> None:
    async with partner() as other:
        twin = out.twin(9, f"https://{other.domain}", other.domain, "a..b")
        out.put(twin, "goes")
        await out.start(1)
        await eventually(lambda: other.uids == ["goes"])
        assert not out.partner("a..b")


async def test_private_addresses_are_not_asked(make: Make) -> None:
    out = make(allow_private=False)
    async with partner() as other:
        twin = out.twin(9, other.domain)
        out.put(twin, "waits")
        await out.start(1)
        await eventually(lambda: out.partner(other.domain).get("failures") == "3")
        assert "not a public address" in out.partner(other.domain)["last_error"]
        assert not other.requests


async def test_a_relay_that_takes_no_connection_counts_however_short_that_is(make: Make) -> None:
    """A connection time-out counts as a failure, although it is much shorter than a request's."""
    out = make(scheme="https", timeout_s=3.0, connect_timeout_s=0.2)

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()  # a TLS handshake, never answered

    async with stream_server(say_nothing) as silent:
        domain = f"127.0.0.1:{silent.port}"
        out.put(out.twin(9, domain))
        await out.start(1)
        await eventually(lambda: int(out.partner(domain).get("failures", 0)) >= 3)
        assert out.partner(domain)["last_error"] == "no connection in time"
        await out.stop()

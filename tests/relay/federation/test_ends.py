"""Messages that are not delivered: the notices that their senders get, and the dead letters."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest

from relay.federation import dead_letters
from relay.federation.shard import SWEEP_S
from relay.queues import keys
from relay.queues.held import unpack
from tests.relay.federation.conftest import ASKER, Make, Outgoing
from tests.support.envelopes import request, response
from tests.support.federation_client import decide
from tests.support.partner import hang_up, in_turn, slow
from tests.support.partner_server import PartnerServer, partner
from tests.support.redis_servers import RedisServer, free_port, start_valkey
from tests.support.waiting import eventually

FIRST = "first"


def told(out: Outgoing) -> list[tuple[str, str]]:
    """Return uid and text of the sender's notices; check that each is addressed to the sender."""
    for notice in out.notices():
        assert not notice.HasField("source")
        assert (notice.destination.twin, notice.destination.connection) == ASKER
    return [(notice.uid, notice.error.message) for notice in out.notices()]


async def test_an_unknown_twin(out: Outgoing) -> None:
    out.twin(999, "other.example")
    await out.start(1)
    out.put(9, FIRST)
    await eventually(out.empty)
    assert told(out) == [(FIRST, "unknown twin destination")]
    assert out.dead()[0]["why"] == b"unknown_twin"


async def test_a_twin_without_relays(out: Outgoing) -> None:
    out.twin(9)
    await out.start(1)
    out.put(9, FIRST)
    await eventually(out.empty)
    assert told(out) == [(FIRST, "relay info is not set for this twin")]


@pytest.mark.parametrize("offers", [False, True])
@pytest.mark.parametrize("status", [400, 403, 404, 413])
async def test_a_refusal_is_final(out: Outgoing, offers: bool, status: int) -> None:
    async with partner(offers) as other:
        twin = out.twin(9, other.domain)
        await out.start(1)
        out.put(twin, "opens")
        await eventually(out.empty)
        other.status = lambda envelope: status if envelope.uid == FIRST else 202
        out.put(twin, FIRST)
        out.put(twin, "next")
        await eventually(out.empty)
        await eventually(lambda: other.uids == ["opens", "next"])
        assert len(other.messages) == 3
        assert told(out) == [(FIRST, "remote relay rejected permanently: destination offline")]
        (letter,) = out.dead()
        assert letter["why"] == b"remote_4xx" and letter["shard"] == b"1"
        (attempt,) = json.loads(letter["tries"])
        assert attempt["relay"] == other.domain and attempt["answer"] == f"answered {status}"
        assert not out.client.exists(keys.failures(other.domain)), "no vote against the relay"
        assert not out.client.keys("federation:tries:*")


async def test_only_requests_are_answered(out: Outgoing) -> None:
    async with partner() as other:
        other.status = lambda envelope: 404
        twin = out.twin(9, other.domain)
        out.put(twin, payload=response(ASKER, (twin, None)).SerializeToString())
        out.put(twin, "of a relay", origin="")
        await out.start(1)
        await eventually(out.empty)
        assert len(out.dead()) == 2 and not out.notices() and not out.client.keys("stream:*")


async def test_what_is_no_envelope_is_given_up(out: Outgoing) -> None:
    out.twin(8, "other.example")
    out.put(8, payload=b"\xff\xff\xff")
    out.put(8, payload=b"")
    await out.start(0)
    await eventually(out.empty)
    assert [letter["why"] for letter in out.dead()] == [b"unparsable"] * 2


async def test_expiry_is_told_when_it_happens(out: Outgoing) -> None:
    domain = f"127.0.0.1:{free_port()}"
    twin = out.twin(9, domain)
    now = int(time.time())
    out.put(twin, FIRST, timestamp=now, expiration=2)
    out.put(twin, "later", timestamp=now, expiration=300)
    await out.start(1)
    await eventually(out.notices)
    assert now + 2 <= time.time() < now + 2.5
    assert told(out) == [(FIRST, "message has expired")]
    (letter,) = out.dead()
    assert letter["why"] == b"expired"
    tries = json.loads(letter["tries"])
    assert 2 <= len(tries) <= 3 and all("refused" in each["answer"] for each in tries)
    assert out.client.xlen(keys.outbox(1)) == 1


async def test_a_request_under_way_ends_with_its_message(out: Outgoing) -> None:
    async with partner() as other:
        other.gate.clear()
        twin = out.twin(9, other.domain)
        now = int(time.time())
        out.put(twin, FIRST, timestamp=now, expiration=2)
        await out.start(1)
        await eventually(out.notices)
        assert now + 2 <= time.time() < now + 2.5
        assert told(out) == [(FIRST, "message has expired")]


async def under_way(out: Outgoing, other: PartnerServer, life_s: int) -> float:
    """Let a partner that supports batches hold a batch, and return when `FIRST` expires.

    The batch has `FIRST` and two messages that live longer.
    """
    twin = out.twin(9, other.domain)
    out.client.hset(keys.partner(other.domain), "kind", "ours")
    other.gate.clear()
    now = int(time.time())
    out.put(twin, "before it", timestamp=now, expiration=300)
    out.put(twin, FIRST, timestamp=now, expiration=life_s)
    out.put(twin, "behind it", timestamp=now, expiration=300)
    await out.start(1)
    await eventually(lambda: other.requests)
    (request,) = other.requests
    assert [each.uid for each in request.envelopes()] == ["before it", FIRST, "behind it"]
    return now + life_s


async def passed(moment: float) -> None:
    """Wait until the sender has handled a deadline."""
    await asyncio.sleep(moment - time.time() + 2 * SWEEP_S)


async def test_what_expires_in_a_batch_may_be_taken_all_the_same(out: Outgoing) -> None:
    async with partner(offers=True) as other:
        await passed(await under_way(out, other, 2))
        assert not out.notices() and len(other.requests) == 1
        other.gate.set()
        await eventually(out.empty)
        assert other.uids == ["before it", FIRST, "behind it"]
        assert not out.notices() and not out.dead() and len(other.requests) == 1


async def test_what_expires_in_a_batch_that_fails_is_told_then(out: Outgoing) -> None:
    async with partner(offers=True) as other:
        await passed(await under_way(out, other, 2))
        other.answer = in_turn(hang_up, other.take)
        other.gate.set()
        await eventually(out.empty)
        assert told(out) == [(FIRST, "message has expired")]
        assert other.uids == ["before it", "behind it"]
        assert all(each.retry for each in other.messages), "they may have been taken the first time"
        assert len(other.requests) == 2


async def test_what_expires_in_a_batch_without_an_answer_is_told_then(make: Make) -> None:
    """The sender is notified soon after the message expires, with few requests made meanwhile."""
    out = make(timeout_s=2.0)
    async with partner(offers=True) as other:
        expires_at = await under_way(out, other, 2)
        await eventually(out.notices)
        assert time.time() - expires_at < out.options.timeout_s
        assert told(out) == [(FIRST, "message has expired")]
        other.gate.set()
        await eventually(out.empty)
        assert {"before it", "behind it"} <= set(other.uids)
        assert len(other.requests) <= 3


async def test_a_batch_ends_with_the_last_of_its_messages(out: Outgoing) -> None:
    async with partner(offers=True) as other:
        twin = out.twin(9, other.domain)
        out.client.hset(keys.partner(other.domain), "kind", "ours")
        other.gate.clear()
        now = int(time.time())
        for life_s in (2, 3):
            out.put(twin, FIRST, timestamp=now, expiration=life_s)
        await out.start(1)
        await eventually(lambda: len(out.notices()) == 2)
        assert now + 3 <= time.time() < now + 3.5
        assert len(other.requests) == 1


async def test_many_lives_in_one_backlog(out: Outgoing) -> None:
    """Each message is either delivered or reported as expired, and none is retried endlessly."""
    async with partner(offers=True) as other:
        twins = [out.twin(9 + 8 * number, other.domain) for number in range(20)]
        out.client.hset(keys.partner(other.domain), "kind", "ours")
        other.answer = slow(0.15, other.take)
        now = int(time.time())
        for number in range(4000):
            out.put(twins[number % 20], f"{number}", timestamp=now, expiration=2 + number % 4)
        await out.start(1)
        await eventually(out.empty)
        both = other.uids + [notice.uid for notice in out.notices()]
        assert sorted(both, key=int) == [f"{number}" for number in range(4000)]
        assert len(other.requests) < 200


def only_in_redis(out: Outgoing, twin: int) -> int:
    """Return how many messages to a twin are known but have their payload only in Redis."""
    lanes = [shard.lanes[twin] for shard in out.sender._shards if twin in shard.lanes]
    entries = [entry for lane in lanes for entry in lane.entries]
    return sum(entry.payload is None for entry in entries) + sum(len(e.notes) for e in lanes)


async def test_expiry_while_redis_is_away_holds_nothing_up(make: Make, tmp_path: Path) -> None:
    """Notices are sent once Redis is back: they need envelopes that only Redis has."""
    server = start_valkey(tmp_path, append_fsync="no")
    try:
        out = make(server=server)
        twin = out.twin(9, f"127.0.0.1:{free_port()}")
        now = int(time.time())
        for number in range(100):
            out.put(twin, f"{number}", timestamp=now, expiration=4)
        await out.start(1)
        await eventually(lambda: only_in_redis(out, twin) == 100)
        server.kill()
        await passed(now + 4)
        server.restart()
        await eventually(lambda: len(out.notices()) == 100)
        await eventually(out.empty)
        await out.close()
    finally:
        server.remove()


async def test_without_a_time_of_life_the_retention_counts(make: Make) -> None:
    out = make(retention_s=1)
    twin = out.twin(9, f"127.0.0.1:{free_port()}")
    stored = time.time()
    out.put(twin, FIRST, expiration=0)
    out.put(twin, "second", timestamp=1000, expiration=10)
    await out.start(1)
    await eventually(out.empty)
    assert time.time() >= stored + 0.99
    assert sorted(told(out)) == [(FIRST, "message has expired"), ("second", "message has expired")]


async def test_many_expire_at_once(out: Outgoing) -> None:
    domain = f"127.0.0.1:{free_port()}"
    twins = [out.twin(8 * number, domain) for number in range(1, 21)]
    now = int(time.time())
    for number in range(2000):
        out.put(twins[number % 20], f"{number}", timestamp=now, expiration=3)
    await out.start(0)
    await eventually(lambda: len(out.notices()) == 2000)
    assert out.empty() and out.client.xlen(keys.DEAD_LETTERS) == 2000


async def test_what_is_only_noted_expires_in_time(out: Outgoing) -> None:
    twin = out.twin(9, f"127.0.0.1:{free_port()}")
    now = int(time.time())
    for number in range(300):
        out.put(twin, f"{number}", timestamp=now, expiration=300 if number % 3 else 3)
    await out.start(1)
    await eventually(lambda: len(out.notices()) == 100)
    assert now + 3 <= time.time() < now + 100
    assert sorted(int(uid) for uid, _ in told(out)) == list(range(0, 300, 3))
    await eventually(lambda: out.client.xlen(keys.outbox(1)) == 200)
    account = out.client.hget(keys.held(out.twins.twins[twin].relays[0]), "total")
    assert unpack(int(account)).messages == 200


async def test_a_dead_letter_is_sent_again(out: Outgoing) -> None:
    async with partner() as other:
        other.status = lambda envelope: 404
        twin = out.twin(9, other.domain)
        out.put(twin, FIRST)
        await out.start(1)
        await eventually(out.dead)
        other.status = lambda envelope: 202
        entry = out.client.xrange(keys.DEAD_LETTERS)[0][0].decode()
        assert dead_letters.requeue(out.client, entry)
        await eventually(lambda: other.uids == [FIRST])
        await eventually(out.empty)
        assert not out.dead()


async def test_dead_letters_are_bounded_in_bytes(out: Outgoing) -> None:
    out.twin(999, "other.example")
    payload = request(ASKER, (9, None), b"x" * (3 << 20)).SerializeToString()
    await out.start(1)
    for _ in range(40):
        out.put(9, payload=payload)
    await eventually(out.empty)
    assert 5 <= out.client.xlen(keys.DEAD_LETTERS) <= 22


async def test_mail_for_blocked_relays_is_refused(out: Outgoing) -> None:
    async with partner() as other:
        twin = out.twin(9, other.domain)
        decide(out.server, other.domain, "blocked")
        out.put(twin, FIRST)
        await out.start(1)
        await eventually(out.empty)
        assert told(out) == [(FIRST, "remote relay rejected permanently: destination offline")]
        assert not other.requests


async def test_mail_for_paused_relays_waits(out: Outgoing) -> None:
    async with partner() as other:
        twin = out.twin(9, other.domain)
        decide(out.server, other.domain, "paused")
        out.put(twin, FIRST)
        await out.start(1)
        await asyncio.sleep(0.3)
        assert not other.requests
        decide(out.server, other.domain, "")
        await eventually(lambda: other.uids == [FIRST])


async def test_the_oldest_redis_will_do(make: Make, redis62: RedisServer) -> None:
    """All scripts, and the read that several shards share, work on Redis 6.2."""
    out = make(server=redis62)
    async with partner(offers=True) as other:
        twins = [out.twin(number, other.domain) for number in range(1, 9)]
        other.status = lambda envelope: 404 if envelope.uid == "refused" else 202
        await out.start()
        for number in range(80):
            out.put(twins[number % 8], f"{number}")
        out.put(twins[0], "refused")
        await eventually(out.empty)
        assert sorted(other.uids, key=int) == [f"{number}" for number in range(80)]
        assert told(out) == [("refused", "remote relay rejected permanently: destination offline")]
        assert len(out.dead()) == 1

"""`relay.federation.dead_letters` and `letters`: dead letters are kept, listed and sent again.

None is ever in two places.
"""

from __future__ import annotations

import pytest

from relay.federation import dead_letters, letters, outbox
from relay.queues import keys
from relay.queues.held import pack, unpack
from tests.relay.federation.stored import PARTNER, add_dead, add_pending, message
from tests.support.redis_servers import RedisServer


def outbox_entries(server: RedisServer, shard: int) -> list[dict[bytes, bytes]]:
    return [fields for _, fields in server.client().xrange(keys.outbox(shard))]


def test_requeue(any_redis: RedisServer) -> None:
    letter = message(destination=12)
    payload = letter.SerializeToString()
    entry = add_dead(any_redis, letter, n=2)
    client = any_redis.client()
    again = dead_letters.requeue(client, entry)
    assert again is not None
    assert outbox_entries(any_redis, 4) == [
        {b"_": payload, b"from": b"7:phone", b"for": PARTNER.encode(), b"n": b"3"}
    ]
    packed = str(pack(1, len(payload))).encode()
    assert client.hgetall(keys.held(PARTNER)) == {b"total": packed, b"7": packed}
    assert any_redis.run("XLEN", keys.DEAD_LETTERS) == 0
    assert dead_letters.requeue(client, entry) is None, "only once"
    assert len(outbox_entries(any_redis, 4)) == 1


def test_requeue_counts_large_messages_exactly(valkey: RedisServer) -> None:
    letter = message()
    letter.plain = bytes((16 << 20) - 100)
    size_bytes = letter.ByteSize()
    assert dead_letters.requeue(valkey.client(), add_dead(valkey, letter))
    total = valkey.run("HGET", keys.held(PARTNER), outbox.TOTAL)
    assert unpack(int(total)) == (1, size_bytes)


def test_a_message_of_the_relay_itself_has_no_source(valkey: RedisServer) -> None:
    entry = add_dead(valkey, message(), **{outbox.ORIGIN: ""})
    assert dead_letters.requeue(valkey.client(), entry)
    assert set(valkey.client().hgetall(keys.held(PARTNER))) == {b"total", b"0"}


@pytest.mark.parametrize("changes", [{"shard": None}, {"shard": 8}, {"shard": -1}, {"_": None}])
def test_what_cannot_be_sent_stays(valkey: RedisServer, changes: dict[str, object]) -> None:
    entry = add_dead(valkey, message(), **changes)
    assert dead_letters.requeue(valkey.client(), entry) is None
    assert valkey.run("XLEN", keys.DEAD_LETTERS) == 1


@pytest.mark.parametrize("entry", ["1-1", "x", "", "-", "+", "1 1"])
def test_ids_that_name_nothing(valkey: RedisServer, entry: str) -> None:
    assert dead_letters.requeue(valkey.client(), entry) is None


def test_delete_and_expire(valkey: RedisServer) -> None:
    client = valkey.client()
    entry = add_dead(valkey, message())
    stored_at = int(entry.split("-")[0]) / 1000
    assert dead_letters.delete(client, entry)
    assert not dead_letters.delete(client, entry)
    add_dead(valkey, message())
    assert dead_letters.expire(client, stored_at + dead_letters.KEPT_S - 60) == 0
    assert dead_letters.expire(client, stored_at + dead_letters.KEPT_S + 60) == 1
    assert letters.dead(client) == []


def test_dead_letters_are_listed_newest_first(valkey: RedisServer) -> None:
    add_dead(valkey, message(uid="first", tags="fail-fast", timestamp=1000, expiration=60))
    add_dead(valkey, message(uid="second"), "expired", tries="nonsense", shard=None)
    second, first = letters.dead(valkey.client())
    assert (second.uid, second.why, second.tries, second.shard) == ("second", "expired", (), 0)
    assert (first.uid, first.why, first.tags) == ("first", "remote_4xx", "fail-fast")
    assert (first.source, first.destination, first.kind) == ("7", "12", "request")
    assert (first.command, first.deadline, first.account) == ("test.cmd", 1060, PARTNER)
    (tried,) = first.tries
    assert (tried.relay, tried.answer, tried.ms) == (PARTNER, "404", 12.5)


def test_bytes_that_are_no_envelope_are_listed(valkey: RedisServer) -> None:
    add_dead(valkey, message(), _=b"\xff\xff\xff")
    (letter,) = letters.dead(valkey.client())
    assert (letter.kind, letter.source, letter.destination) == ("", "7:phone", "")


def test_pending_messages_are_listed_oldest_first(valkey: RedisServer) -> None:
    first = add_pending(valkey, message(destination=12, uid="first"))
    add_pending(valkey, message(destination=5, uid="second"))
    good = '{"at": 5, "relay": "b.example", "answer": "503", "ms": 1}'
    for document in (good, "{}", "[]", "x", '{"at": null}'):
        valkey.run("RPUSH", keys.tries(4, first), document)
    one, two = letters.pending(valkey.client())
    assert (one.uid, one.shard, len(one.tries), one.why) == ("first", 4, 1, "")
    assert (two.uid, two.shard, two.tries) == ("second", 5, ())


def test_long_texts_are_cut(valkey: RedisServer) -> None:
    add_pending(valkey, message(uid="u" * 10_000))
    (letter,) = letters.pending(valkey.client())
    assert len(letter.uid) == letters.MAX_TEXT_CHARS + 1

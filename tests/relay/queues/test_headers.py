"""Headers of queued messages: all in order, malformed ones included, and never a payload."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from proto.rmb import types_pb2 as pb
from relay.queues import headers, scripts
from tests.relay.queues.mail import TO, put
from tests.support.envelopes import request
from tests.support.redis_servers import RedisServer


@pytest.fixture
def client(any_redis: RedisServer) -> Iterator[Redis]:
    with Redis(port=any_redis.port, protocol=2) as client:
        yield client


def test_what_is_told_of_a_message(any_redis: RedisServer, client: Redis) -> None:
    now = int(time.time())
    envelope = request((3, ""), (7, "x"), b"p" * 5000, uid="u", tags="a,b", timestamp=now)
    entry = put(any_redis, "7:x", envelope)
    (header,) = headers.read(client, "7:x")
    assert header.entry == entry and abs(header.at - time.time()) < 5
    assert header.size_bytes == envelope.ByteSize()
    assert 5000 <= header.payload_bytes <= 5003  # including the length field
    assert (header.source, header.source_twin, header.destination) == ("3:", 3, "7:x")
    assert (header.uid, header.kind, header.command) == ("u", "request", "test.cmd")
    assert (header.deadline, header.expired, header.tags_bytes) == (now + 300, False, 3)
    assert header.problem == ""


def test_expired_is_what_died_while_it_waited(any_redis: RedisServer, client: Redis) -> None:
    now = time.time()
    stored = f"{int((now - 10) * 1000)}-0"
    put(any_redis, "7", request((3, None), TO, timestamp=int(now) - 12, expiration=5), stored)
    put(any_redis, "7", request((3, None), TO, timestamp=int(now) - 60, expiration=5), "*")
    put(any_redis, "7", request((3, None), TO, expiration=0), "*")
    found = headers.read(client, "7")
    assert [each.expired for each in found] == [True, False, False]
    assert found[2].deadline == 0


def test_bad_entries_are_listed_as_such(any_redis: RedisServer, client: Redis) -> None:
    put(any_redis, "7", b"\xff\xff\xff")
    any_redis.run("XADD", "stream:7", "*", "other", "field")
    put(any_redis, "7", request((3, None), TO, uid="u" * headers.HEADER_BYTES))
    put(any_redis, "7", b"\x0a\x02\xff\xfe")  # a uid that is not valid UTF-8
    put(any_redis, "7", request((3, None), TO, uid="good"), more="fields")
    found = headers.read(client, "7")
    assert [each.problem for each in found] == [
        "unparsable", "no_envelope", "too_large", "unparsable", "",
    ]  # fmt: skip
    assert found[4].uid == "good"


def test_the_payload_does_not_leave_redis(any_redis: RedisServer, client: Redis) -> None:
    secret = b"\x13plain-and-secret\x14"
    envelope = request((3, None), TO, secret, uid="u")
    ciphered = request((3, None), TO, uid="c")
    ciphered.cipher = secret
    # Another encoder may write the fields in another order, or a field twice.
    shuffled = envelope.SerializeToString() + ciphered.SerializeToString()
    for each in (envelope, ciphered, shuffled):
        put(any_redis, "7", each)
    arguments = ("-", "+", 10, 1 << 20, 1 << 14)
    reply: Any = client.eval(scripts.source("heads"), 1, "stream:7", *arguments)
    assert len(reply) == 15 and b"secret" not in b"".join(p for p in reply if type(p) is bytes)
    assert [each.uid for each in headers.read(client, "7")] == ["u", "c", "c"]


def test_pages(any_redis: RedisServer, client: Redis) -> None:
    entries = [put(any_redis, "7", request((3, None), TO)) for _ in range(5)]
    first = headers.read(client, "7", count=2)
    assert [each.entry for each in first] == entries[:2]
    rest = headers.read(client, "7", after=entries[1], up_to=entries[3])
    assert [each.entry for each in rest] == entries[2:4]
    assert headers.read(client, "7", after=entries[4]) == []
    assert headers.read(client, "8") == []


def test_large_messages_end_a_page_early(any_redis: RedisServer, client: Redis) -> None:
    large = request((3, None), TO, bytes(headers.PAGE_BYTES // 2 + 1))
    entries = [put(any_redis, "7", large) for _ in range(4)]
    pages = list(headers.read_all(client, "7"))
    assert [len(page) for page in pages] == [2, 2]
    assert [each.entry for page in pages for each in page] == entries


@given(data=st.binary(max_size=60), cut=st.integers(0, 80))
@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_bytes(valkey: RedisServer, data: bytes, cut: int) -> None:
    """Any entry of a queue is listed: the script accepts every envelope that a parser accepts."""
    envelope = request((3, "s"), TO, b"pay", uid="u").SerializeToString()
    value = envelope[:cut] + data
    valkey.run("DEL", "stream:7")
    put(valkey, "7", value)
    with Redis(port=valkey.port, protocol=2) as client:
        (header,) = headers.read(client, "7")
    assert header.size_bytes == len(value)
    try:
        parsed = pb.Envelope.FromString(value)
    except Exception:
        assert header.problem
    else:
        # The script only lacks groups, which the wire format has but no envelope uses.
        assert header.problem or header.uid == parsed.uid

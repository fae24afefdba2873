"""`relay.federation.live`: reading the state of partner relays, even if fields are broken."""

from __future__ import annotations

from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from relay.federation import live
from relay.federation.live import PartnerState
from relay.queues import keys
from tests.relay.federation.stored import PARTNER, add_partner, add_pending, message
from tests.support.redis_servers import RedisServer

NOW = 10_000.0


def read(server: RedisServer, domain: str = PARTNER) -> PartnerState:
    return live.read_partners(server.client(), [domain], 3600, NOW)[domain]


def test_a_relay_nothing_is_known_of(any_redis: RedisServer) -> None:
    assert read(any_redis) == PartnerState(PARTNER)
    assert live.read_partners(any_redis.client(), [], 3600) == {}


def test_what_drainers_and_workers_keep(any_redis: RedisServer) -> None:
    add_partner(any_redis, retry_at=10_060.25, failures=3, kind="ours", last_error="503",
                last_success=9_000.5, sent=12, received=7, latency_ms=4.5, heard=9_500)  # fmt: skip
    for at in (6_400, 6_400.5, 9_999):  # the first is just outside the period
        any_redis.run("ZADD", keys.failures(PARTNER), at, f"{at}")
    state = read(any_redis)
    assert (state.failures, state.rate_per_hour, state.in_a_row) == (2, 2.0, 3)
    assert (state.retry_at, state.last_error, state.kind) == (10_060.25, "503", "ours")
    assert (state.sent, state.received, state.latency_ms) == (12, 7, 4.5)
    assert (state.last_success, state.heard) == (9_000.5, 9_500.0)


def test_what_waits_for_it_and_since_when(any_redis: RedisServer) -> None:
    sent = message(destination=12), message(destination=20)
    first, _ = (add_pending(any_redis, each) for each in sent)
    add_pending(any_redis, message(destination=4), account="a.example")
    state = read(any_redis)
    assert state.held.messages == 2
    assert state.held.size_bytes == sum(len(each.SerializeToString()) for each in sent)
    assert state.oldest_at == live.stored_at(first)
    with any_redis.client().pipeline(transaction=False) as pipe:
        live.queue_heads(pipe, 1)
        (reply,) = pipe.execute()
    heads = live.read_heads(reply)
    assert [shard.length for shard in heads] == [0, 0, 0, 0, 3, 0, 0, 0]
    assert heads[4].oldest_at == live.stored_at(first)
    assert set(heads[4].accounts) == {PARTNER}


def test_heads_stop_at_large_payloads(valkey: RedisServer) -> None:
    for _ in range(3):
        large = message()
        large.plain = bytes(1 << 20)
        add_pending(valkey, large)
    with valkey.client().pipeline(transaction=False) as pipe:
        live.queue_heads(pipe, 100)
        (reply,) = pipe.execute()
    assert [len(shard) for shard in reply][4] == 1 + 2 * 1


def test_kinds() -> None:
    assert PartnerState("x").kind == "unknown"
    assert PartnerState("x", last_success=1.0).kind == "reference"
    assert PartnerState("x", ours=True).kind == "ours"


NAMES = ("retry_at", "failures", "kind", "last_success", "sent", "latency_ms", "last_error")


@hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.sampled_from(NAMES), st.binary(max_size=20)), st.binary(max_size=20))
def test_broken_fields_take_no_page_away(
    valkey: RedisServer, fields: dict[str, bytes], held: bytes
) -> None:
    valkey.run("FLUSHALL")
    for name, value in fields.items():
        valkey.run("HSET", keys.partner(PARTNER), name, value)
    valkey.run("HSET", keys.held(PARTNER), "total", held)
    read(valkey)

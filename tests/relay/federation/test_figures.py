"""`relay.federation.figures` and `counters`: the drainers' counts as Prometheus reads them."""

from __future__ import annotations

import pytest
from redis.asyncio import Redis as AsyncRedis

from proto.rmb.reasons import MessageReason
from relay.federation import counters, figures
from relay.federation.counters import LATENCY_LABELS, Tally
from relay.ops.metric_names import BY_NAME, family
from relay.queues import keys
from tests.relay.federation.stored import PARTNER, add_dead, add_partner, add_pending, message
from tests.relay.ops.test_exposition import samples
from tests.support.redis_servers import RedisServer


def store(server: RedisServer, tally: Tally) -> None:
    for field, count in tally.take().items():
        server.run("HINCRBY", keys.FEDERATION_COUNTERS, field, count)


def test_nothing_yet(any_redis: RedisServer) -> None:
    found = figures.read(any_redis.client())
    assert set(found.values()) == {0.0}
    assert {family(name.partition("{")[0]) for name in found} <= set(BY_NAME)


def test_deliveries(any_redis: RedisServer) -> None:
    tally = Tally()
    tally.delivered(PARTNER, [0.004])
    tally.delivered(PARTNER, [0.2] * 3)
    tally.delivered("a.example", [4000.0])
    tally.failed(PARTNER)
    store(any_redis, tally)
    tally.failed(PARTNER)
    store(any_redis, tally)
    found = figures.read(any_redis.client())
    assert found['federation_message_success{relay="b.example"}'] == 4
    assert found['federation_message_success{relay="a.example"}'] == 1
    assert found['federation_message_error{relay="b.example"}'] == 2
    buckets = [found[f'federation_delivery_seconds_bucket{{le="{le}"}}'] for le in LATENCY_LABELS]
    assert buckets == [1, 1, 1, 1, 1, 4, 4, 4, 4, 4, 4, 4, 4, 5]
    assert found["federation_delivery_seconds_count"] == 5
    assert found["federation_delivery_seconds_sum"] == pytest.approx(4000.604)


def test_what_was_taken_is_not_counted_again() -> None:
    tally = Tally()
    tally.failed(PARTNER)
    tally.failed(PARTNER)
    tally.dropped(MessageReason.EXPIRED)
    assert tally.take() == {f"error|{PARTNER}": 2, "dropped|expired": 1}
    assert tally.take() == {}


def test_what_waits(any_redis: RedisServer) -> None:
    entry = add_pending(any_redis, message(destination=12))
    add_pending(any_redis, message(destination=12))
    add_dead(any_redis, message())
    add_partner(any_redis, retry_at=1_900_000_060)
    add_partner(any_redis, "a.example", retry_at=5)
    stored_at = int(entry.partition("-")[0]) / 1000
    found = figures.read(any_redis.client(), now=stored_at + 7)
    assert found['federation_outbox_messages{shard="4"}'] == 2
    assert found['federation_outbox_oldest_seconds{shard="4"}'] == pytest.approx(7)
    assert found['federation_outbox_oldest_seconds{shard="5"}'] == 0
    assert found["federation_dead_letters"] == 1
    found = figures.read(any_redis.client(), now=1_900_000_000)
    assert found['federation_backoff_seconds{relay="b.example"}'] == 60
    assert found['federation_backoff_seconds{relay="a.example"}'] == 0


async def test_the_same_on_an_event_loop(any_redis: RedisServer) -> None:
    add_partner(any_redis, retry_at=1_900_000_060)
    add_pending(any_redis, message())
    client = AsyncRedis.from_url(any_redis.url)
    try:
        found = await figures.read_async(client, now=1_900_000_000)
    finally:
        await client.aclose()
    assert found == figures.read(any_redis.client(), now=1_900_000_000)


def test_what_was_given_up(valkey: RedisServer) -> None:
    valkey.run("HSET", keys.FEDERATION_COUNTERS, counters.field(counters.DROPPED, "expired"), 3)
    found = figures.read(valkey.client())
    assert found['federation_message_dropped_total{reason="expired"}'] == 3


def test_relays_beyond_the_bound_are_one(
    valkey: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures, "MAX_RELAYS", 2)
    tally = Tally()
    for number in range(5):
        tally.delivered(f"r{number}", [0.0] * (number + 1))
    store(valkey, tally)
    found = figures.read(valkey.client())
    success = {name: value for name, value in found.items() if "success" in name}
    assert success == {
        'federation_message_success{relay="r4"}': 5,
        'federation_message_success{relay="r3"}': 4,
        'federation_message_success{relay="other"}': 6,
    }


@pytest.mark.django_db
def test_the_page(client: object, site_redis: RedisServer) -> None:
    tally = Tally()
    tally.delivered('odd"\\name', [0.1])
    tally.delivered(PARTNER, [0.1])
    store(site_redis, tally)
    site_redis.run(
        "HSET", keys.FEDERATION_COUNTERS, "success|x\ny", "5", "junk", "x", "error|z", ""
    )
    text = client.get("/metrics").content.decode()  # type: ignore[attr-defined]
    found = samples(text)
    name = "federation_message_success_total"  # as the parser names every counter
    assert found[name, (("relay", PARTNER),)] == 1
    assert found[name, (("relay", 'odd"\\name'),)] == 1
    assert "# TYPE federation_delivery_seconds histogram" in text

"""Values computed from successive looks at heartbeats and figures."""

from __future__ import annotations

import json
from typing import Any

import pytest

from relay.history.sampling import Sampler, quantile
from relay.ops.load import Snapshot
from relay.ops.workers import WorkerState, read_worker

NOW = 1_800_000_000.0


def worker(boot_id: str, beat: float, *, lag_ms: float = 0.0, **metrics: float) -> WorkerState:
    fields = {"slot": "0", "host": "h", "heartbeat": str(NOW + beat), "sessions": "5",
              "loop_lag_ms": str(lag_ms), "metrics": json.dumps(metrics)}  # fmt: skip
    return read_worker(boot_id, fields)


def seen(at: float, *workers: WorkerState, **federation: float) -> Snapshot:
    return Snapshot(at, workers, federation, (), None, 3_000_000)


def test_rates_are_those_between_two_heartbeats() -> None:
    """Rates span two heartbeats, not two looks: heartbeats are not exactly a second apart."""
    sampler = Sampler()
    first = sampler.sample(seen(0.0, worker("a", 0.0, relay_message_rx=100)))
    assert "messages_in" not in first
    assert first["sessions"] == 5
    assert first["redis_memory"] == 3_000_000
    second = worker("a", 1.01, relay_message_rx=1110)
    assert sampler.sample(seen(1.0, second))["messages_in"] == 1000
    # No new heartbeat: the rate stays, it does not drop to zero.
    assert sampler.sample(seen(2.0, second))["messages_in"] == 1000
    third = worker("a", 3.01, relay_message_rx=1110)
    assert sampler.sample(seen(3.0, third))["messages_in"] == 0


def test_workers_add_up_and_new_ones_wait_for_their_second_heartbeat() -> None:
    sampler = Sampler()
    sampler.sample(seen(0.0, worker("a", 0.0), worker("b", 0.5)))
    found = sampler.sample(
        seen(
            1.0,
            worker("a", 1.0, lag_ms=2, relay_message_tx_bytes=4096),
            worker("b", 1.5, lag_ms=7, relay_message_tx_bytes=1024),
            worker("new", 1.0, relay_message_tx_bytes=1_000_000),
        )
    )
    assert found["bytes_out"] == 5120
    assert found["workers"] == 3
    assert found["loop_lag"] == 0.007


def test_a_silent_worker_does_nothing() -> None:
    sampler = Sampler()
    last = worker("a", 1.0, relay_message_rx=50)
    sampler.sample(seen(0.0, worker("a", 0.0)))
    assert sampler.sample(seen(1.0, last))["messages_in"] == 50
    assert sampler.sample(seen(5.0, last))["messages_in"] == 50
    assert "messages_in" not in sampler.sample(seen(7.0, last))


def test_without_a_worker_there_is_no_rate() -> None:
    found = Sampler().sample(seen(0.0))
    assert found["workers"] == found["sessions"] == 0
    assert not {"messages_in", "drops", "loop_lag", "commit_p50"} & set(found)


def test_federation_over_some_looks() -> None:
    sampler = Sampler()
    success, failure = (
        'federation_message_success{relay="b"}',
        'federation_message_error{relay="b"}',
    )
    dropped = 'federation_message_dropped_total{reason="expired"}'
    waiting = {
        'federation_outbox_messages{shard="0"}': 4.0,
        'federation_outbox_messages{shard="1"}': 3.0,
    }
    sampler.sample(seen(0.0, **{success: 10.0, failure: 0.0}))
    found = sampler.sample(seen(2.0, **{success: 19.0, failure: 1.0, dropped: 4.0}, **waiting))
    assert found["federation_success"] == 0.9
    assert found["drops_expired"] == found["drops"] == 2.0
    assert found["drops_purged"] == 0.0
    assert found["outbox"] == 7
    # No attempt since then: there is no share.
    for at in range(3, 9):
        found = sampler.sample(seen(float(at), **{success: 19.0, failure: 1.0, dropped: 4.0}))
    assert "federation_success" not in found


def buckets(*counts: float) -> dict[str, float]:
    return dict(zip(("0.001", "0.01", "0.1", "+Inf"), counts, strict=True))


@pytest.mark.parametrize(
    ("counts", "part", "wanted"),
    [
        ((0, 0, 0, 0), 0.5, None),
        ((10, 10, 10, 10), 0.5, 0.0005),
        ((0, 10, 10, 10), 0.5, 0.0055),
        ((5, 10, 10, 10), 0.5, 0.001),
        ((0, 0, 0, 7), 0.99, 0.1),
    ],
)
def test_quantiles(counts: tuple[Any, ...], part: float, wanted: float | None) -> None:
    found = quantile(buckets(*counts), part)
    assert found == (None if wanted is None else pytest.approx(wanted))

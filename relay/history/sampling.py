"""Computes the values of the series from snapshots of the relay. No I/O.

Workers and drainers publish their counters about once a second, and snapshots are taken once a
second: in some seconds a snapshot sees two of their reports and in some none. So a worker's rates
are computed between its last two heartbeats, by its own clock, and the counters of drainers over
several snapshots. A worker that is new, or was silent, has no rates until its second heartbeat.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Mapping
from typing import Final, NamedTuple

from proto.rmb.reasons import MessageReason
from relay.history.packing import rounded
from relay.history.series import DROP_REASONS, drops
from relay.ops import load
from relay.ops.load import Snapshot
from relay.ops.metric_names import series
from relay.ops.workers import LATE_S, WorkerState

FEDERATION_LOOKS: Final = 5
"""Number of snapshots over which the growth of federation's counters is measured."""

_SUMS: Final = {
    "messages_in": "relay_message_rx",
    "messages_out": "relay_message_tx",
    "bytes_in": "relay_message_rx_bytes",
    "bytes_out": "relay_message_tx_bytes",
    "queued": "relay_messages_queued_total",
    "federation_out": "relay_messages_federated_total",
    "federation_in": "federation_inbound_accepted_total",
    "limit_hits": "relay_limit_hits_total",
}
"""Series that are the rate of one counter of all workers, with the name of the counter."""


_PURGED: Final = series("relay_messages_total", reason=MessageReason.PURGED)
"""Counted by the processes of operators' commands and sites, which have no heartbeat."""


_SUMMED: Final = ("federation_message_success", "federation_message_error")
"""Counters kept for each partner relay, of which only the sum is used."""


class _Beats(NamedTuple):
    """The last two heartbeats of a worker, and when the later one was first seen."""

    before: WorkerState | None
    last: WorkerState
    seen: float


class Sampler:
    """The state kept between snapshots."""

    def __init__(self) -> None:
        self._beats: dict[str, _Beats] = {}
        self._federation: deque[tuple[float, Mapping[str, float]]] = deque(
            maxlen=FEDERATION_LOOKS + 1
        )

    def sample(self, found: Snapshot) -> dict[str, float]:
        """Return the values at a snapshot; series without a known value are omitted."""
        self._note(found)
        values = _gauges(found)
        counts = self._counts(found.at)
        dropped = self._of_federation(values)
        if counts is not None:
            for key, name in _SUMS.items():
                values[key] = counts[name]
            for reason, rate in load.labelled(counts, "relay_messages_total").items():
                dropped[reason] = dropped.get(reason, 0.0) + rate
            for key in ("commit", "delivery"):
                _add_quantiles(values, key, load.labelled(counts, f"relay_{key}_seconds_bucket"))
        if counts is not None or dropped:
            values["drops"] = sum(dropped.values())
            values |= {drops(reason): dropped.get(reason, 0.0) for reason in DROP_REASONS}
        return {key: rounded(value) for key, value in values.items()}

    def _note(self, found: Snapshot) -> None:
        beats = {}
        for worker in found.workers:
            known = self._beats.get(worker.boot_id)
            if known is None or found.at - known.seen > LATE_S:
                beats[worker.boot_id] = _Beats(None, worker, found.at)
            elif worker.heartbeat > known.last.heartbeat:
                beats[worker.boot_id] = _Beats(known.last, worker, found.at)
            else:
                beats[worker.boot_id] = known
        self._beats = beats
        if self._federation and found.at - self._federation[-1][0] > LATE_S:
            self._federation.clear()
        self._federation.append((found.at, _brief(found)))

    def _counts(self, now: float) -> Mapping[str, float] | None:
        """Return the rates of all workers' counters; None while no worker has two heartbeats."""
        counts: defaultdict[str, float] = defaultdict(float)
        known = False
        for beats in self._beats.values():
            if beats.before is None or now - beats.seen > LATE_S:
                continue
            elapsed_s = beats.last.heartbeat - beats.before.heartbeat
            for name, more in load.grown(beats.before.metrics, beats.last.metrics).items():
                counts[name] += more / elapsed_s
            known = True
        return counts if known else None

    def _of_federation(self, values: dict[str, float]) -> dict[str, float]:
        """Add the values of federation, and return the drops of drainers per second, by reason."""
        (before_at, before), (after_at, after) = self._federation[0], self._federation[-1]
        if after_at <= before_at:
            return {}
        counts = load.grown(before, after)
        succeeded, failed = (counts[name] for name in _SUMMED)
        if succeeded + failed:
            values["federation_success"] = succeeded / (succeeded + failed)
        buckets = load.labelled(counts, "federation_delivery_seconds_bucket")
        _add_quantiles(values, "federation", buckets)
        dropped = load.labelled(counts, "federation_message_dropped_total")
        dropped |= load.labelled(counts, "relay_messages_total")
        return {reason: count / (after_at - before_at) for reason, count in dropped.items()}


def quantile(buckets: Mapping[str, float], part: float) -> float | None:
    """Return the value below which a share of the events lies, interpolated linearly in its bucket.

    Above the highest finite bound only that bound is known, and returned.

    Args:
        buckets: cumulative counts by upper bound, `+Inf` among them.
        part: share of the events, from 0 to 1.

    Returns:
        The value; None if there are no events.
    """
    bounds = sorted((float(bound), count) for bound, count in buckets.items())
    if not bounds or bounds[-1][1] <= 0:
        return None
    wanted = part * bounds[-1][1]
    low, below = 0.0, 0.0
    for bound, count in bounds:
        if count >= wanted:
            if math.isinf(bound) or count <= below:
                return low
            return low + (bound - low) * (wanted - below) / (count - below)
        low, below = bound, count
    return low


def _brief(found: Snapshot) -> dict[str, float]:
    """Return the counters kept outside of workers, with those of partner relays summed up."""
    brief = {_PURGED: float(found.purged), **dict.fromkeys(_SUMMED, 0.0)}
    for name, value in found.federation.items():
        metric = name.partition("{")[0]
        if metric in _SUMMED:
            brief[metric] += value
        else:
            brief[name] = value
    return brief


def _gauges(found: Snapshot) -> dict[str, float]:
    outbox = load.labelled(found.federation, "federation_outbox_messages")
    values = {
        "sessions": float(sum(worker.all_sessions for worker in found.workers)),
        "workers": float(len(found.workers)),
        "outbox": sum(outbox.values()),
        "dead_letters": found.federation.get("federation_dead_letters", 0.0),
        "redis_memory": float(found.redis_bytes),
    }
    if found.waiting is not None:
        values["waiting"] = float(found.waiting)
    if found.workers:
        values["loop_lag"] = max(worker.loop_lag_ms for worker in found.workers) / 1000
    if found.chain is not None:
        values["chain_lag"] = float(found.chain.following.lag_blocks)
    return values


def _add_quantiles(values: dict[str, float], name: str, buckets: Mapping[str, float]) -> None:
    for suffix, part in (("p50", 0.5), ("p99", 0.99)):
        found = quantile(buckets, part)
        if found is not None:
            values[f"{name}_{suffix}"] = found

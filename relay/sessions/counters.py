"""Counters of a worker for /metrics: plain numbers, incremented on the hot path."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from typing import Final

from proto.rmb.reasons import SessionReason

COMMIT_BOUNDS_S: Final[tuple[float, ...]] = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0,
)  # fmt: skip

DELIVERY_BOUNDS_S: Final[tuple[float, ...]] = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0,
)  # fmt: skip

_SESSION_REASONS: Final = {reason.value: reason for reason in SessionReason}


class Counters:
    """Totals since the worker started."""

    __slots__ = (
        "batches",
        "check_found",
        "commit_buckets",
        "commit_s",
        "delivery_buckets",
        "delivery_s",
        "drops",
        "evictions",
        "federated",
        "limit_hits",
        "queued",
        "redis_reconnects",
        "redis_restarts",
        "refused_by_server",
        "refused_handshakes",
        "rx",
        "rx_bytes",
        "sessions_filled",
        "sessions_opened",
        "slowed",
        "slowed_s",
        "tx",
        "tx_bytes",
        "went_back",
    )

    def __init__(self) -> None:
        self.rx = self.rx_bytes = 0  # from clients
        self.tx = self.tx_bytes = 0  # to clients, from queues
        self.queued = 0  # committed for sessions that are not in memory mode here
        self.federated = 0  # committed to the outbox
        self.batches = 0
        self.commit_s = 0.0
        self.commit_buckets = [0] * (len(COMMIT_BOUNDS_S) + 1)
        self.delivery_s = 0.0
        self.delivery_buckets = [0] * (len(DELIVERY_BOUNDS_S) + 1)
        self.sessions_opened = 0
        self.sessions_filled = 0  # times a socket stalled a session at its memory bound
        self.redis_reconnects = 0
        self.redis_restarts = 0  # or fail-overs: the run id changed
        self.went_back = 0  # times that Redis provably lost writes
        self.check_found = 0
        self.limit_hits = 0
        self.slowed = 0
        self.slowed_s = 0.0
        self.drops: Counter[str] = Counter()  # by message reason
        self.evictions: Counter[str] = Counter()  # by session reason
        self.refused_handshakes: Counter[str] = Counter()  # by session reason
        self.refused_by_server: Mapping[str, int] = {}  # by the server's own reasons

    def committed(self, took_s: float) -> None:
        """Record that one batch was answered."""
        self.batches += 1
        self.commit_s += took_s
        for index, bound in enumerate(COMMIT_BOUNDS_S):
            if took_s <= bound:
                self.commit_buckets[index] += 1
                return
        self.commit_buckets[-1] += 1

    def delivered(self, took_s: float, messages: int) -> None:
        """Record messages that arrived together and were written to sessions that keep up.

        Args:
            took_s: seconds that the first of them took; all are counted with it.
            messages: number of messages.
        """
        self.delivery_s += took_s * messages
        self.delivery_buckets[bisect_left(DELIVERY_BOUNDS_S, took_s)] += messages

    def series(self) -> dict[str, float]:
        """Return all counters by their series in the Prometheus text format."""
        named: dict[str, float] = {
            "relay_message_rx": self.rx,
            "relay_message_rx_bytes": self.rx_bytes,
            "relay_message_tx": self.tx,
            "relay_message_tx_bytes": self.tx_bytes,
            "relay_messages_queued_total": self.queued,
            "relay_messages_federated_total": self.federated,
            "relay_sessions_opened_total": self.sessions_opened,
            "relay_sessions_filled_total": self.sessions_filled,
            "relay_redis_reconnects_total": self.redis_reconnects,
            "relay_redis_restarts_total": self.redis_restarts,
            "relay_redis_went_back_total": self.went_back,
            "relay_check_found_total": self.check_found,
            "relay_limit_hits_total": self.limit_hits,
            "relay_slowed_total": self.slowed,
            "relay_slowed_seconds_total": self.slowed_s,
            "relay_commit_seconds_sum": self.commit_s,
            "relay_commit_seconds_count": self.batches,
            "relay_delivery_seconds_sum": self.delivery_s,
            "relay_delivery_seconds_count": sum(self.delivery_buckets),
        }
        for name, bounds, buckets in (
            ("relay_commit_seconds", COMMIT_BOUNDS_S, self.commit_buckets),
            ("relay_delivery_seconds", DELIVERY_BOUNDS_S, self.delivery_buckets),
        ):
            below = 0
            for bound, count in zip((*bounds, "+Inf"), buckets, strict=True):
                below += count
                named[f'{name}_bucket{{le="{bound}"}}'] = below
        for name, counts in (
            ("relay_messages_total", self.drops),
            ("relay_session_evictions_total", self.evictions),
            ("relay_handshakes_refused_total", self._refused()),
        ):
            for reason, count in counts.items():
                named[f'{name}{{reason="{reason}"}}'] = count
        return named

    def _refused(self) -> Counter[str]:
        """Return the handshakes refused by the relay and by the server.

        Reasons of the server that are not session reasons count as protocol errors.
        """
        refused = Counter(self.refused_handshakes)
        for reason, count in self.refused_by_server.items():
            refused[_SESSION_REASONS.get(reason, SessionReason.PROTOCOL_ERROR)] += count
        return refused

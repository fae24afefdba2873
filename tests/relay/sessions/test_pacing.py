"""The arithmetic of back-pressure on messages that are refused."""

from __future__ import annotations

import pytest

from relay.sessions.pacing import (
    BURST_S,
    LONGEST_SHARE,
    VAIN_PER_S,
    WORKER_VAIN_PER_S,
    Pace,
    pause_s,
)

READ = 100
"""Number of messages in one read."""


def kept_up(twins: int, connections: int, seconds: float = 20.0) -> float:
    """Return how many refused messages per second are read from twins that send without pause."""
    worker = Pace()
    readers = [(pace, [0.0]) for pace in (Pace() for _ in range(twins)) for _ in range(connections)]
    taken, now = 0, 0.0
    while now < seconds:
        for pace, next_read in readers:
            if next_read[0] <= now:
                taken += READ
                next_read[0] = now + pause_s(pace, worker, READ, 0, now)
        now += 0.005
    return taken / seconds


def test_a_burst_costs_nothing() -> None:
    assert pause_s(Pace(), Pace(), int(BURST_S * VAIN_PER_S), 0, 5.0) == 0


@pytest.mark.parametrize("connections", [1, 20])
def test_a_twin_has_its_rate_whatever_its_connections(connections: int) -> None:
    slack = BURST_S * VAIN_PER_S + 2 * READ * connections
    assert VAIN_PER_S * 0.9 <= kept_up(1, connections) <= VAIN_PER_S + slack


def test_many_twins_have_the_workers_rate() -> None:
    assert kept_up(20, 1) <= 1.2 * WORKER_VAIN_PER_S


def test_what_passes_gives_time_back() -> None:
    twin, worker = Pace(), Pace()
    assert pause_s(twin, worker, 2 * VAIN_PER_S, 0, 0.0) > 1
    assert pause_s(twin, worker, 0, 2 * VAIN_PER_S, 0.0) == 0
    assert twin.ahead_s(0.0) == 0


def test_one_refused_message_does_not_wait_for_the_floods_of_others() -> None:
    worker = Pace()
    worker.charge(100.0, 0.0)
    assert 0 < pause_s(Pace(), worker, 1, 0, 0.0) <= LONGEST_SHARE / VAIN_PER_S
    assert pause_s(Pace(), worker, 0, 10, 0.0) == 0

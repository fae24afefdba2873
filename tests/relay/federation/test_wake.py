"""Starting the drainers' tasks from a worker: throttled, in a thread, never failing the loop."""

from __future__ import annotations

import logging
import queue
import threading

import pytest

from relay.federation.wake import START_S, Starter
from relay.queues import keys


class Tasks:
    """A stand-in for the broker that records what is started, and can fail or hang."""

    def __init__(self) -> None:
        self.started: queue.Queue[int] = queue.Queue()
        self.error: Exception | None = None
        self.go = threading.Event()
        self.go.set()

    def start(self, shard: int) -> None:
        assert threading.current_thread() is not threading.main_thread()
        self.go.wait(10)
        self.started.put(shard)
        if self.error is not None:
            raise self.error


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_shard_is_started_once_a_second() -> None:
    tasks, clock = Tasks(), Clock()
    starter = Starter(tasks.start, clock)
    for shard in (3, 3, 5, 3):
        starter.wake(shard)
    assert tasks.started.get(timeout=10) == 3
    assert tasks.started.get(timeout=10) == 5
    clock.now += START_S
    starter.wake(3)
    assert tasks.started.get(timeout=10) == 3
    starter.stop()
    assert tasks.started.empty() and starter.failures == 0


def test_failures_are_counted_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    tasks, clock = Tasks(), Clock()
    tasks.error = ConnectionError("broker is away")
    starter = Starter(tasks.start, clock)
    with caplog.at_level(logging.WARNING):
        for shard in range(4):
            starter.wake(shard)
        starter.stop()
    assert starter.failures == 4
    assert len(caplog.records) == 1 and "broker is away" in caplog.text


def test_a_broker_that_hangs_holds_nobody_up() -> None:
    tasks, clock = Tasks(), Clock()
    tasks.go.clear()
    starter = Starter(tasks.start, clock)
    for _ in range(5):
        for shard in range(keys.OUTBOX_SHARDS):
            starter.wake(shard)
        clock.now += START_S
    assert starter.failures
    tasks.go.set()
    assert tasks.started.get(timeout=10) == 0
    starter.stop()


def test_nothing_runs_before_it_is_needed() -> None:
    before = threading.active_count()
    Starter(Tasks().start).stop()
    assert threading.active_count() == before

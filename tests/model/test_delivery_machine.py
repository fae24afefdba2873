"""The delivery promises, tested with runs that hypothesis generates.

Two workers (production code) with up to nine clients, a foreign writer and one Redis run in
simulated time. Rules send, close, kill, cut and crash; the oracle judges each event. At the end
every queue is read empty, and each message must have an outcome. `RMB_MODEL_EXAMPLES` sets the
number of runs (`make fuzz` does a large campaign).
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.model.actions import FAULT_SETS, PAUSES_S, Actions, random_run
from tests.model.marks import ABANDONED

pytestmark = ABANDONED

EXAMPLES = int(os.environ.get("RMB_MODEL_EXAMPLES", "40"))
NUMBERS = st.integers(0, 8)
MILLISECONDS = st.sampled_from((0, 5, 50, 300, 700, 3_000, 40_000))


@pytest.fixture(autouse=True)
def abandoned_worlds() -> Iterator[None]:
    """Collect coroutines that killed workers left unstarted, where their warnings are expected."""
    yield
    gc.collect()


class DeliveryMachine(RuleBasedStateMachine):
    """The actions of `Actions` as rules; `teardown` repairs the world and judges the run."""

    @initialize(seed=st.integers(0, 2**16))
    def begin(self, seed: int) -> None:
        self.actions = Actions(seed)
        for number in range(4):
            self.actions.connect(number, number)
        self.actions.world.run_for(0.1)

    @rule(client=NUMBERS, to=NUMBERS, count=st.integers(1, 12), size=NUMBERS, request=st.booleans())
    def send(self, client: int, to: int, count: int, size: int, request: bool) -> None:
        self.actions.send(client, to, count, size, request)

    @rule(client=NUMBERS, kind=NUMBERS)
    def send_elsewhere(self, client: int, kind: int) -> None:
        self.actions.send_elsewhere(client, kind)

    @rule(client=NUMBERS)
    def ping(self, client: int) -> None:
        self.actions.ping(client)

    @rule(to=NUMBERS, count=st.integers(1, 3))
    def write_from_outside(self, to: int, count: int) -> None:
        self.actions.write_from_outside(to, count)

    @rule(pause=st.integers(0, len(PAUSES_S) - 1))
    def wait(self, pause: int) -> None:
        self.actions.wait(pause)

    @rule(worker=NUMBERS, key=NUMBERS)
    def connect(self, worker: int, key: int) -> None:
        self.actions.connect(worker, key)

    @rule(client=NUMBERS, worker=NUMBERS, returns=st.booleans())
    def replace(self, client: int, worker: int, returns: bool) -> None:
        self.actions.replace(client, worker, returns)

    @rule(client=NUMBERS, how=st.sampled_from(("close", "reset", "vanish")))
    def leave(self, client: int, how: str) -> None:
        getattr(self.actions, how)(client)

    @rule(client=NUMBERS, reading=st.booleans())
    def read(self, client: int, reading: bool) -> None:
        (self.actions.start_reading if reading else self.actions.stop_reading)(client)

    @rule(worker=NUMBERS, late_ms=MILLISECONDS)
    def kill_worker(self, worker: int, late_ms: int) -> None:
        self.actions.kill_worker(worker, late_ms)

    @rule(worker=NUMBERS)
    def drain_worker(self, worker: int) -> None:
        self.actions.drain_worker(worker)

    @rule(worker=NUMBERS, ms=MILLISECONDS)
    def freeze_worker(self, worker: int, ms: int) -> None:
        self.actions.freeze_worker(worker, ms)

    @rule(worker=NUMBERS, pubsub=st.booleans(), upwards=st.booleans(), size=st.integers(0, 3_000))
    def cut_after(self, worker: int, pubsub: bool, upwards: bool, size: int) -> None:
        self.actions.cut_after(worker, pubsub, upwards, size)

    @rule(worker=NUMBERS, pubsub=st.booleans())
    def cut(self, worker: int, pubsub: bool) -> None:
        self.actions.cut(worker, pubsub)

    @rule(worker=NUMBERS, pubsub=st.booleans(), ms=MILLISECONDS)
    def half_open(self, worker: int, pubsub: bool, ms: int) -> None:
        self.actions.half_open(worker, pubsub, ms)

    @rule(worker=NUMBERS, pubsub=st.booleans(), ms=MILLISECONDS)
    def stall(self, worker: int, pubsub: bool, ms: int) -> None:
        self.actions.stall(worker, pubsub, ms)

    @rule(lose=st.sampled_from((0, 0, 1, 2, 5, 20)), down_ms=MILLISECONDS, loading_ms=MILLISECONDS)
    def crash_redis(self, lose: int, down_ms: int, loading_ms: int) -> None:
        self.actions.crash_redis(lose, down_ms, loading_ms)

    @rule(ms=MILLISECONDS)
    def pause_redis(self, ms: int) -> None:
        self.actions.pause_redis(ms)

    @rule(full=st.booleans())
    def memory(self, full: bool) -> None:
        (self.actions.fill_memory if full else self.actions.free_memory)()

    def teardown(self) -> None:
        if hasattr(self, "actions"):
            self.actions.world.settle()


TestDeliveryMachine = DeliveryMachine.TestCase
TestDeliveryMachine.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.parametrize("faults", FAULT_SETS.values(), ids=FAULT_SETS)
def test_random_runs(faults: frozenset[str]) -> None:
    for seed in range(max(5, EXAMPLES // 4)):
        random_run(seed, 25, faults)

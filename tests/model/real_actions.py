"""The actions of `actions.draw` in a world of real processes, where they take real time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from typing import Any

from proto.rmb.address import SessionKey
from tests.model.actions import MAX_CLIENTS, draw
from tests.support.real_worker import READY_S, RealWorker
from tests.support.real_world import RealWorld, Visitor
from tests.support.tcp_proxy import Direction
from tests.support.waiting import eventually
from tests.support.world import ELSEWHERE_TWIN, UNKNOWN_TWIN

PAUSES_S = (0.0, 0.0003, 0.001, 0.003, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.6)
SIZES = (0, 60, 3_000, 7_000, 60_000)
LONGEST_MS = 700
"""Maximum duration of a fault, in milliseconds; longer ones show no more than the simulation."""
AT_LEAST = 4
"""Minimum number of connections to maintain: kills end many at once."""
RECEIVE_BUFFERS = (0, 4096)


class RealActions:
    """One run: actions happen, faults are undone after their time, and `settle` judges."""

    def __init__(self, world: RealWorld, seed: int) -> None:
        self.world = world
        world.begin(RECEIVE_BUFFERS[seed % len(RECEIVE_BUFFERS)])
        one, two, three, four = map(world.twin, range(4))
        self.keys: tuple[SessionKey, ...] = ((one, None), (two, None), (two, ""), (three, "a"))
        # No client signs in as the last one before the end.
        self.destinations: tuple[SessionKey, ...] = (*self.keys, (four, None))
        self._under_way: set[asyncio.Task[None]] = set()
        self._busy: set[RealWorker] = set()  # being replaced or frozen

    def later(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(coroutine)
        self._under_way.add(task)

    async def settle(self) -> None:
        """Wait until every fault is undone, then judge the run."""
        await asyncio.gather(*self._under_way)
        self.free_memory()
        for worker in self.world.workers:
            worker.heal()
        await self.world.settle()

    # Choosing

    async def somebody_there(self) -> None:
        """Wait for a signed-in client; while a worker starts there may be none."""
        if self._client(0) is None:
            await eventually(lambda: self._client(0) is not None or self._all_ended(), READY_S)

    def _all_ended(self) -> bool:
        return all(visitor.ended for visitor in self.world.visitors)

    def _worker(self, number: int) -> RealWorker:
        return self.world.workers[number % len(self.world.workers)]

    def _client(self, number: int) -> Visitor | None:
        alive = [visitor for visitor in self.world.visitors if visitor.alive]
        return alive[number % len(alive)] if alive else None

    # Traffic

    async def wait(self, pause: int) -> None:
        await asyncio.sleep(PAUSES_S[pause % len(PAUSES_S)])

    def connect(self, worker: int, key: int) -> None:
        there = sum(not visitor.ended for visitor in self.world.visitors)
        if there < MAX_CLIENTS:
            self.world.connect(self._worker(worker), self.keys[key % len(self.keys)])

    def send(self, client: int, to: int, count: int, size: int, request: bool) -> None:
        if (visitor := self._client(client)) is not None:
            for _ in range(count):
                destination = self.destinations[to % len(self.destinations)]
                visitor.send(destination, SIZES[size % len(SIZES)])

    def send_elsewhere(self, client: int, kind: int) -> None:
        if (visitor := self._client(client)) is not None:
            if kind % 3 == 0:
                visitor.send(self.keys[kind % len(self.keys)], 10, tags="fail-fast")
            else:
                visitor.send(((UNKNOWN_TWIN.id, None), (ELSEWHERE_TWIN.id, None))[kind % 2])

    def ping(self, client: int) -> None:
        if (visitor := self._client(client)) is not None:
            visitor.ping()

    def write_from_outside(self, to: int, count: int) -> None:
        for _ in range(count):
            self.world.write_from_outside(self.destinations[to % len(self.destinations)])

    # Clients

    def close(self, client: int) -> None:
        if (visitor := self._client(client)) is not None:
            visitor.close()

    def reset(self, client: int) -> None:
        if (visitor := self._client(client)) is not None:
            visitor.reset()

    def vanish(self, client: int) -> None:
        if (visitor := self._client(client)) is not None:
            visitor.vanish()

    def stop_reading(self, client: int) -> None:
        if (visitor := self._client(client)) is not None:
            visitor.stop_reading()

    def start_reading(self, client: int) -> None:
        if (visitor := self._client(client)) is not None:
            visitor.start_reading()

    def replace(self, client: int, worker: int, returns: bool) -> None:
        if (visitor := self._client(client)) is not None:
            if returns:
                visitor.close()
            self.world.connect(self._worker(worker), visitor.key)

    # Workers

    def kill_worker(self, worker: int, late_ms: int) -> None:
        self._occupy(self._worker(worker), self._kill)

    async def _kill(self, worker: RealWorker) -> None:
        self.world.oracle.worker_died(worker.name)
        await worker.kill()
        await worker.start()

    def drain_worker(self, worker: int) -> None:
        self._occupy(self._worker(worker), self._drain)

    async def _drain(self, worker: RealWorker) -> None:
        await worker.drain()
        await worker.start()

    def freeze_worker(self, worker: int, ms: int) -> None:
        self._occupy(self._worker(worker), self._freeze, _seconds(ms))

    async def _freeze(self, worker: RealWorker, duration_s: float) -> None:
        worker.freeze()
        await asyncio.sleep(duration_s)
        worker.thaw()

    def _occupy(self, worker: RealWorker, what: Any, *arguments: Any) -> None:
        """Start a fault of a worker, unless another one is under way there."""
        if worker in self._busy:
            return
        self._busy.add(worker)

        async def run() -> None:
            try:
                await what(worker, *arguments)
            finally:
                self._busy.discard(worker)

        self.later(run())

    # Links

    def cut(self, worker: int, pubsub: bool) -> None:
        if (link := self._worker(worker).link(pubsub=pubsub)) is not None:
            link.reset()

    def cut_after(self, worker: int, pubsub: bool, upwards: bool, size_bytes: int) -> None:
        place = self._worker(worker)
        if (link := place.link(pubsub=pubsub)) is not None:
            place.cut_after(link.to_server if upwards else link.to_client, size_bytes)

    def half_open(self, worker: int, pubsub: bool, ms: int) -> None:
        """Stop all traffic of a connection, and close it later."""
        self.later(self._stall(worker, pubsub, _seconds(ms), resumes=False))

    def stall(self, worker: int, pubsub: bool, ms: int) -> None:
        self.later(self._stall(worker, pubsub, _seconds(ms), resumes=True))

    async def _stall(self, worker: int, pubsub: bool, duration_s: float, *, resumes: bool) -> None:
        if (link := self._worker(worker).link(pubsub=pubsub)) is None:
            return
        for direction in Direction:
            link.flow(direction).stall()
        await asyncio.sleep(duration_s)
        if resumes:
            for direction in Direction:
                link.flow(direction).resume()
        else:
            link.reset()

    # Redis

    def crash_redis(self, lose: int, down_ms: int, loading_ms: int) -> None:
        if self.world.redis_there:
            self.world.redis_there = False
            self.later(self._crash(_seconds(down_ms)))

    async def _crash(self, down_s: float) -> None:
        """Kill Redis with SIGKILL and restart it.

        No data is lost, because every write is in the file before its answer.
        """
        self.world.oracle.redis_crashed(0)
        await asyncio.to_thread(self.world.server.kill)
        await asyncio.sleep(down_s)
        await asyncio.to_thread(self.world.server.start)
        self.world.redis_there = True

    def pause_redis(self, ms: int) -> None:
        if self.world.redis_there:
            self.world.redis_there = False
            self.later(self._pause(_seconds(ms)))

    async def _pause(self, duration_s: float) -> None:
        self.world.server.pause()
        await asyncio.sleep(duration_s)
        self.world.server.resume()
        self.world.redis_there = True

    def fill_memory(self) -> None:
        self._limit_memory("1mb")

    def free_memory(self) -> None:
        self._limit_memory("0")

    def _limit_memory(self, size: str) -> None:
        if self.world.redis_there:
            self.world.server.run("CONFIG", "SET", "maxmemory", size)


def _seconds(ms: int) -> float:
    return min(ms, LONGEST_MS) / 1000


async def real_run(
    world: RealWorld, seed: int, steps: int, faults: frozenset[str] = frozenset()
) -> None:
    """Do one run with actions drawn from the seed, and judge it at the end."""
    rng = random.Random(seed)
    actions = RealActions(world, seed)
    for worker in range(2):
        for key in range(2):
            actions.connect(worker, key * 2 + rng.randrange(2))
    await eventually(lambda: all(each.alive or each.ended for each in world.visitors), READY_S)
    for _ in range(steps):
        if sum(not each.ended for each in world.visitors) < AT_LEAST:
            actions.connect(rng.randrange(2), rng.randrange(4))
        await actions.somebody_there()
        name, arguments = draw(rng, faults)
        world.oracle.note(f"-- {name}{arguments}")
        outcome = getattr(actions, name)(*arguments)
        if outcome is not None:
            await outcome
        if rng.random() < 0.6:
            pause = min(rng.randrange(len(PAUSES_S)), rng.randrange(len(PAUSES_S)))
            await actions.wait(pause)
    await actions.settle()

"""Everything that can happen in a simulated world, one method each, for random and chosen runs."""

from __future__ import annotations

import random
from typing import Any

from proto.rmb.address import SessionKey
from tests.support.sim.net import Link
from tests.support.sim.world import GUEST_TWIN, Twin, WorkerProcess, World

KEYS: tuple[SessionKey, ...] = ((1, None), (2, None), (2, ""), (3, "a"))
DESTINATIONS: tuple[SessionKey, ...] = (
    *KEYS,
    (4, None),
)  # no client signs in as 4 before the end
PAUSES_S = (0.0, 0.0003, 0.001, 0.003, 0.01, 0.1, 0.4, 0.6, 2.0, 16.0, 35.0)
SIZES = (0, 60, 300, 3_000, 7_000)
MAX_CLIENTS = 9
MAX_WORKERS = 2


class Actions:
    """A world and the actions on it; arguments select by number, modulo the number of choices."""

    def __init__(self, seed: int) -> None:
        self.world = World(seed)

    # Choosing

    def _worker(self, number: int) -> WorkerProcess:
        living = self.world.living
        return living[number % len(living)]

    def _client(self, number: int) -> Twin | None:
        alive = [
            twin
            for twin in self.world.twins
            if twin.client.alive and twin.process.alive and hasattr(twin, "session")
        ]
        return alive[number % len(alive)] if alive else None

    def _link(self, number: int, pubsub: bool) -> Link | None:
        process = self._worker(number)
        return process.pubsub_link if pubsub else process.commit_link

    # Traffic

    def wait(self, pause: int) -> None:
        self.world.run_for(PAUSES_S[pause % len(PAUSES_S)])

    def connect(self, worker: int, key: int) -> None:
        if sum(twin.client.alive for twin in self.world.twins) < MAX_CLIENTS:
            self.world.connect(self._worker(worker), KEYS[key % len(KEYS)])

    def send(self, client: int, to: int, count: int, size: int, request: bool) -> None:
        if (twin := self._client(client)) is not None:
            for _ in range(count):
                destination = DESTINATIONS[to % len(DESTINATIONS)]
                twin.send(destination, SIZES[size % len(SIZES)], request=request)

    def send_elsewhere(self, client: int, kind: int) -> None:
        """Send a message that is refused or goes to a partner relay, or one with `fail-fast`."""
        if (twin := self._client(client)) is not None:
            if kind % 3 == 0:
                twin.send(KEYS[kind % len(KEYS)], 10, tags="fail-fast")
            else:
                twin.send(((99, None), (GUEST_TWIN, None))[kind % 2])

    def ping(self, client: int) -> None:
        if (twin := self._client(client)) is not None:
            twin.ping()

    def write_from_outside(self, to: int, count: int) -> None:
        for _ in range(count):
            self.world.write_from_outside(DESTINATIONS[to % len(DESTINATIONS)], 40)

    # Clients

    def close(self, client: int) -> None:
        if (twin := self._client(client)) is not None:
            twin.client.close()

    def reset(self, client: int) -> None:
        if (twin := self._client(client)) is not None:
            twin.client.reset()

    def vanish(self, client: int) -> None:
        if (twin := self._client(client)) is not None:
            twin.client.vanish()

    def stop_reading(self, client: int) -> None:
        if (twin := self._client(client)) is not None:
            twin.client.stop_reading()

    def start_reading(self, client: int) -> None:
        if (twin := self._client(client)) is not None:
            twin.client.start_reading()

    def replace(self, client: int, worker: int, returns: bool) -> None:
        """Sign in with the key of another client, which may leave just before."""
        if (twin := self._client(client)) is not None:
            if returns:
                twin.client.close()
            self.world.connect(self._worker(worker), twin.key)

    # Workers

    def kill_worker(self, worker: int, late_ms: int) -> None:
        self.world.kill_worker(self._worker(worker), late_ms / 1000)
        if len(self.world.living) < MAX_WORKERS:
            self.world.start_worker()

    def drain_worker(self, worker: int) -> None:
        process = self._worker(worker)
        if process.worker is not None and not process.loop.frozen:
            process.loop.call_soon(process.worker.drain)
            if sum(not self._draining(p) for p in self.world.living) < MAX_WORKERS:
                self.world.start_worker()

    def _draining(self, process: WorkerProcess) -> bool:
        return process.worker is not None and process.worker.draining

    def freeze_worker(self, worker: int, ms: int) -> None:
        self.world.faulty = True
        self._worker(worker).loop.freeze_for(ms / 1000)

    # Links

    def cut(self, worker: int, pubsub: bool) -> None:
        if (link := self._link(worker, pubsub)) is not None:
            link.cut()

    def cut_after(self, worker: int, pubsub: bool, upwards: bool, size_bytes: int) -> None:
        if (link := self._link(worker, pubsub)) is not None:
            pipe = link.up if upwards else link.down
            pipe.cut_after = size_bytes

    def half_open(self, worker: int, pubsub: bool, ms: int) -> None:
        if (link := self._link(worker, pubsub)) is not None:
            link.half_open(ms / 1000)

    def stall(self, worker: int, pubsub: bool, ms: int) -> None:
        self.world.faulty = True
        if (link := self._link(worker, pubsub)) is not None:
            link.stall(ms / 1000)

    # Redis

    def crash_redis(self, lose: int, down_ms: int, loading_ms: int) -> None:
        world = self.world
        if world.redis.up:
            world.crash_redis(lose)
            world.simulation.world.call_later(down_ms / 1000, self._restart, loading_ms / 1000)

    def _restart(self, loading_s: float) -> None:
        if not self.world.redis.up:
            self.world.restart_redis(loading_s)

    def pause_redis(self, ms: int) -> None:
        self.world.faulty = True
        self.world.redis_loop.freeze_for(ms / 1000)

    def fill_memory(self) -> None:
        self.world.redis.fill_memory()

    def free_memory(self) -> None:
        self.world.redis.free_memory()


def random_run(seed: int, steps: int, faults: frozenset[str] = frozenset()) -> World:
    """Do one run of a campaign with actions drawn from the seed, and judge it at the end."""
    rng = random.Random(seed)
    actions = Actions(seed)
    for process in actions.world.living:
        for key in range(2):
            actions.connect(actions.world.living.index(process), key * 2 + rng.randrange(2))
    actions.world.run_for(0.1)
    for _ in range(steps):
        name, arguments = draw(rng, faults)
        actions.world.oracle.note(f"-- {name}{arguments}")
        getattr(actions, name)(*arguments)
        if rng.random() < 0.6:
            actions.wait(min(rng.randrange(len(PAUSES_S)), rng.randrange(len(PAUSES_S))))
    actions.world.settle()
    return actions.world


TRAFFIC = ("send", "ping", "write_from_outside", "send_elsewhere", "wait", "connect")
QUIET = ("close", "replace", "stop_reading", "start_reading")
CLIENT_FAULTS = ("reset", "vanish")
WORKER_FAULTS = ("kill_worker", "drain_worker", "freeze_worker")
LINK_FAULTS = ("cut", "cut_after", "half_open", "stall")
REDIS_FAULTS = ("crash_redis", "pause_redis", "fill_memory", "free_memory")
FAULTS = frozenset((*CLIENT_FAULTS, *WORKER_FAULTS, *LINK_FAULTS, *REDIS_FAULTS))
FAULT_SETS = {
    "no faults": frozenset[str](),
    "clients": frozenset(CLIENT_FAULTS),
    "workers": frozenset(WORKER_FAULTS),
    "links": frozenset(LINK_FAULTS),
    "redis": frozenset(REDIS_FAULTS),
    "all": FAULTS,
}


def draw(rng: random.Random, faults: frozenset[str]) -> tuple[str, tuple[Any, ...]]:
    choice = rng.random()
    if choice < 0.55 or (choice > 0.75 and not faults):
        name = rng.choice(TRAFFIC) if rng.random() < 0.5 else "send"
    elif choice < 0.75:
        name = rng.choice(QUIET)
    else:
        name = rng.choice(sorted(faults))
    number, flag = rng.randrange(100), rng.random() < 0.5
    some_ms = rng.choice((0, 5, 50, 300, 700, 3_000, 40_000))
    arguments: dict[str, tuple[Any, ...]] = {
        "send": (number, rng.randrange(9), rng.choice((1, 1, 2, 5, 12)), rng.randrange(5), flag),
        "ping": (number,),
        "write_from_outside": (number, rng.choice((1, 3))),
        "send_elsewhere": (number, rng.randrange(12)),
        "wait": (min(number % 11, rng.randrange(11)),),
        "connect": (number, rng.randrange(9)),
        "replace": (number, rng.randrange(9), flag),
        "kill_worker": (number, some_ms),
        "freeze_worker": (number, some_ms),
        "cut": (number, flag),
        "cut_after": (number, flag, rng.random() < 0.6, rng.choice((number, 30 * number))),
        "half_open": (number, flag, some_ms),
        "stall": (number, flag, some_ms),
        "crash_redis": (
            rng.choice((0, 0, 1, 2, 5, 20)),
            rng.choice((1, 100, 2_000)),
            rng.choice((0, 0, 300)),
        ),
        "pause_redis": (some_ms,),
        "fill_memory": (),
        "free_memory": (),
        "drain_worker": (number,),
    }
    return name, arguments.get(name, (number,))

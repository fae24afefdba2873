"""Virtual time: one scheduler, and one asyncio loop per simulated process.

Nothing waits in real time. When no process has anything ready, the clock jumps to the next timer.
The order in which processes get their turns is drawn from the seed, so a run depends only on its
seed. Each process has its own loop because a process can be *frozen* (SIGSTOP, a long garbage
collection: its timers are late while the others continue) and *killed* (none of its code ever runs
again, not even a `finally`).
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import Any

START_UNIX_S = 1_700_000_000.0
"""Wall clock of a simulation at its start; any fixed instant would do."""

MAX_TURNS_AT_ONE_INSTANT = 200_000
"""Maximum number of turns without time passing; a run that takes more is in an endless loop."""


class SimulationError(AssertionError):
    """A simulated run did what it must never do."""


class NothingHappens(SimulationError):
    """The predicate is false, no process is ready and no timer is armed."""


class LimitReached(SimulationError):
    """The predicate was still false when the allowed virtual time was over."""


class Simulation:
    """The scheduler: the clock, the seed, and the loops of all simulated processes."""

    def __init__(self, seed: int = 0) -> None:
        self.now = 0.0
        self.rng = random.Random(seed)
        self.loops: list[SimLoop] = []
        self.world = self.loop("world")  # networks, kernels and clients: never frozen
        self._sequence = itertools.count()
        self._turns_at_now = 0

    def loop(self, name: str) -> SimLoop:
        """Start a process: return the loop on which its code has to run."""
        loop = SimLoop(self, name)
        self.loops.append(loop)
        return loop

    def unix_time(self) -> float:
        return START_UNIX_S + self.now

    def run_until(self, predicate: Callable[[], bool], limit_s: float) -> None:
        """Run turn by turn until the predicate holds.

        Raises:
            LimitReached: It was still false after `limit_s` of virtual time.
            NothingHappens: It is false and nothing can ever happen.
        """
        limit = self.now + limit_s
        while not predicate():
            if not self._step(limit):
                if self.now >= limit:
                    raise LimitReached(f"still false after {limit_s} s of virtual time")
                raise NothingHappens("nothing ready, no timer armed, and the predicate is false")

    def run_for(self, duration_s: float) -> None:
        """Run all processes for this much virtual time."""
        limit = self.now + duration_s
        while self._step(limit):
            pass
        self.now = max(self.now, limit)

    def complete(self, loop: SimLoop, coroutine: Any, limit_s: float = 60.0) -> Any:
        """Run a coroutine in a process until it is done and return its result."""
        task = loop.create_task(coroutine)
        self.run_until(task.done, limit_s)
        return task.result()

    def next_sequence(self) -> int:
        return next(self._sequence)

    def _step(self, limit: float) -> bool:
        """Run one turn, or move the clock if no process is ready; return False at the end."""
        ready = [loop for loop in self.loops if loop.collect(self.now)]
        if not ready:
            due = min(
                (w for loop in self.loops if (w := loop.next_timer()) is not None), default=None
            )
            if due is None or due > limit:
                if due is not None:
                    self.now = limit
                return False
            self.now = max(self.now, due)
            self._turns_at_now = 0
            return True
        self._turns_at_now += 1
        if self._turns_at_now > MAX_TURNS_AT_ONE_INSTANT:
            raise SimulationError(f"spinning at {self.now:.6f} s: {ready[0].describe()}")
        loop = ready[0] if len(ready) == 1 else self.rng.choice(ready)
        loop.turn()
        if loop.errors:
            error = loop.errors.pop(0)
            raise SimulationError(f"unhandled error in process {loop.name}: {error}") from (
                error.get("exception")
            )
        return True


class SimLoop(asyncio.AbstractEventLoop):
    """The event loop of one simulated process."""

    def __init__(self, simulation: Simulation, name: str) -> None:
        self.simulation = simulation
        self.name = name
        self.errors: list[dict[str, Any]] = []  # what asyncio would have logged
        self.frozen = False
        self.dead = False
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._kept: list[Any] = []  # tasks of a killed process: never collected, so never unwound

    # What happens to a process

    def freeze(self) -> None:
        """Stop running (SIGSTOP); data that arrives meanwhile waits."""
        self.frozen = True

    def thaw(self) -> None:
        self.frozen = False

    def freeze_for(self, duration_s: float) -> None:
        self.freeze()
        self.simulation.world.call_later(duration_s, self.thaw)

    def kill(self) -> None:
        """End the process (SIGKILL): none of its code runs any more."""
        self._kept.extend(asyncio.all_tasks(self))
        self._kept.append((list(self._ready), list(self._timers)))
        self.dead = True
        self._ready.clear()
        self._timers.clear()
        if self in self.simulation.loops:
            self.simulation.loops.remove(self)

    # What the scheduler asks

    def collect(self, now: float) -> bool:
        """Move due timers to the ready queue; return whether there is something to run."""
        if self.frozen:
            return False
        timers = self._timers
        while timers and (timers[0][0] <= now or timers[0][2].cancelled()):
            handle = heapq.heappop(timers)[2]
            handle._scheduled = False
            if not handle.cancelled():
                self._ready.append(handle)
        return bool(self._ready)

    def next_timer(self) -> float | None:
        if self.frozen:
            return None
        while self._timers and self._timers[0][2].cancelled():
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def turn(self) -> None:
        """Run what is ready now, as one turn; what it schedules belongs to the next turn."""
        previous = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            for _ in range(len(self._ready)):
                if self.dead:
                    break
                handle = self._ready.popleft()
                if not handle.cancelled():
                    handle._run()
        finally:
            asyncio._set_running_loop(previous)

    def describe(self) -> str:
        return f"{self.name}: {[repr(handle) for handle in list(self._ready)[:3]]}"

    # The part of the asyncio interface that code without threads and real sockets uses

    def time(self) -> float:
        return self.simulation.now

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        if self.dead:
            handle.cancel()
        else:
            self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        if self.dead:
            handle.cancel()
        else:
            handle._scheduled = True
            heapq.heappush(self._timers, (when, self.simulation.next_sequence(), handle))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Do nothing if a timer is cancelled: cancelled timers are skipped when due."""

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: str | None = None, context: Any = None) -> Any:  # type: ignore[override]
        return asyncio.Task(coro, loop=self, name=name, context=context)

    def is_running(self) -> bool:
        return not self.dead

    def is_closed(self) -> bool:
        return self.dead

    def get_debug(self) -> bool:
        return False

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.call_exception_handler(context)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self.dead:
            self.errors.append(context)

"""Look-ups that come one by one, served together.

    batches = Batches(serve)
    batches.put(twin, flight)      # a future that `serve` will answer

The first begins a batch in the next turn of the loop, so that all of this turn join it. In a rush
the next batch begins `GATHER_S` after the one before it: a batch costs more than the look-ups in
it. While a batch is served, those that come gather until it is done; if it is slow, a second batch
begins beside it after `OVERTAKE_S`, and so on up to a bound.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable

from relay.twins import bounds
from relay.twins.source import TwinRecord

Flight = asyncio.Future[TwinRecord | None]


class Batches:
    """Flights on their way to one place. Used on one event loop.

    Attributes:
        waiting: those whose batch has not begun.
    """

    def __init__(self, serve: Callable[[dict[int, Flight]], Awaitable[None]]) -> None:
        """
        Args:
            serve: answers or passes on every flight of a batch; it does not raise.
        """
        self.waiting: dict[int, Flight] = {}
        self._serve = serve
        self._tasks: set[asyncio.Task[None] | None] = set()
        self._began_at = float("-inf")  # loop time of the last batch's beginning
        self._beginning = False  # its task has not taken its flights
        self._timer: asyncio.TimerHandle | None = None  # begins the next one

    def put(self, twin: int, flight: Flight) -> None:
        """Have a flight served soon."""
        older = self.waiting.get(twin)
        if older is not None:
            # The batch that serves the newer one begins after the older one was wanted.
            flight.add_done_callback(lambda done: _hand_over(done, older))
        self.waiting[twin] = flight
        if self._timer is None and not self._beginning:
            self._schedule()

    async def close(self) -> None:
        """End the batches under way; what still waits stays in `waiting`."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        tasks = [task for task in self._tasks if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _schedule(self) -> None:
        """Have the next batch begin as soon as it may."""
        if len(self._tasks) >= bounds.MAX_PARALLEL_FETCHES:
            return  # the end of one of them begins it
        loop = asyncio.get_running_loop()
        pause_s = bounds.OVERTAKE_S if self._tasks else bounds.GATHER_S
        begin_at = self._began_at + pause_s
        whole = not self._tasks and len(self.waiting) >= bounds.MAX_FETCH
        if whole or begin_at <= loop.time():
            self._begin()
        else:
            self._timer = loop.call_at(begin_at, self._begin)

    def _begin(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = None
        self._beginning = True
        self._began_at = loop.time()
        self._tasks.add(loop.create_task(self._run()))

    async def _run(self) -> None:
        self._beginning = False
        try:
            batch = dict(itertools.islice(self.waiting.items(), bounds.MAX_FETCH))
            for twin in batch:
                del self.waiting[twin]
            if self.waiting:
                self._schedule()
            await self._serve(batch)
        finally:
            # Not by a callback: a miss before it ran would wait for a batch that is over.
            self._tasks.discard(asyncio.current_task())
        if self.waiting and not self._beginning:
            if self._timer is not None:
                self._timer.cancel()  # it may begin sooner now
            self._schedule()


def _hand_over(done: Flight, older: Flight) -> None:
    if older.done():
        return
    if done.cancelled():
        older.cancel()
    elif (error := done.exception()) is not None:
        older.set_exception(error)
    else:
        older.set_result(done.result())

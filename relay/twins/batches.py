"""Batches of look-ups that arrive one by one.

    batches = Batches(serve)
    batches.put(twin, flight)      # a future that `serve` will answer

The first look-up begins a batch in the next turn of the loop, so that all look-ups of this turn
join it. Under load the next batch begins `GATHER_S` after the previous one, because a batch costs
more than the look-ups in it. While a batch is served, new look-ups wait until it is done; if it is
slow, a second batch begins beside it after `OVERTAKE_S`, and so on up to a bound.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable

from relay.twins import bounds
from relay.twins.source import TwinRecord

Flight = asyncio.Future[TwinRecord | None]


class Batches:
    """Flights, which are futures of look-ups, that go to one place. Used on one event loop.

    Attributes:
        waiting: flights whose batch has not begun, by twin.
    """

    def __init__(self, serve: Callable[[dict[int, Flight]], Awaitable[None]]) -> None:
        """Initialise the batches.

        Args:
            serve: function that answers or passes on every flight of a batch; it does not raise.
        """
        self.waiting: dict[int, Flight] = {}
        self._serve = serve
        self._tasks: set[asyncio.Task[None] | None] = set()
        self._began_at = float("-inf")  # loop time of the last batch's beginning
        self._beginning = False  # whether its task has yet to take its flights
        self._timer: asyncio.TimerHandle | None = None  # begins the next one

    def put(self, twin: int, flight: Flight) -> None:
        """Schedule a flight to be served soon."""
        older = self.waiting.get(twin)
        if older is not None:
            # The newer flight's batch begins after the older one was requested, so it answers both.
            flight.add_done_callback(lambda done: _hand_over(done, older))
        self.waiting[twin] = flight
        if self._timer is None and not self._beginning:
            self._schedule()

    async def close(self) -> None:
        """Cancel the batches in progress; flights that still wait stay in `waiting`."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        tasks = [task for task in self._tasks if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _schedule(self) -> None:
        """Schedule the next batch for the earliest time allowed."""
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
            # Not in a callback: a miss before it ran would wait for a batch that has ended.
            self._tasks.discard(asyncio.current_task())
        if self.waiting and not self._beginning:
            if self._timer is not None:
                self._timer.cancel()  # the next batch may begin sooner now
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

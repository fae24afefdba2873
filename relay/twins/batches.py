"""Look-ups that come one by one, served together.

    batches = Batches(serve)
    batches.put(twin, flight)      # a future that `serve` will answer

The first begins a batch in the next turn of the loop, so that all of this turn join it. Those that
come while it is served gather and go together when it is done; if it is slow, a second batch begins
beside it, and so on up to a bound.
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
        self._patience: asyncio.TimerHandle | None = None

    def put(self, twin: int, flight: Flight) -> None:
        """Have a flight served soon."""
        older = self.waiting.get(twin)
        if older is not None:
            # The batch that serves the newer one begins after the older one was wanted.
            flight.add_done_callback(lambda done: _hand_over(done, older))
        self.waiting[twin] = flight
        if not self._tasks:
            self._begin()
        elif self._patience is None:
            loop = asyncio.get_running_loop()
            self._patience = loop.call_later(bounds.GATHER_S, self._lose_patience)

    async def close(self) -> None:
        """End the batches under way; what still waits stays in `waiting`."""
        if self._patience is not None:
            self._patience.cancel()
        tasks = [task for task in self._tasks if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self) -> None:
        self._tasks.add(asyncio.get_running_loop().create_task(self._run()))

    def _lose_patience(self) -> None:
        self._patience = None
        if self.waiting and len(self._tasks) < bounds.MAX_PARALLEL_FETCHES:
            self._begin()

    async def _run(self) -> None:
        try:
            while self.waiting:
                batch = dict(itertools.islice(self.waiting.items(), bounds.MAX_FETCH))
                for twin in batch:
                    del self.waiting[twin]
                await self._serve(batch)
        finally:
            # Not by a callback: a miss before it ran would wait for a batch that is over.
            self._tasks.discard(asyncio.current_task())


def _hand_over(done: Flight, older: Flight) -> None:
    if older.done():
        return
    if done.cancelled():
        older.cancel()
    elif (error := done.exception()) is not None:
        older.set_exception(error)
    else:
        older.set_result(done.result())

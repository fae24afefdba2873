"""Twins by id, as the hot path needs them: from memory, without a query, a wait or a lock.

A look-up goes from the process's memory to the hash all workers share to the source. Concurrent
misses are gathered into one fetch for many ids. A twin is believed for `life_s`; one that is still
in use is refreshed in the background before that. While the source is away stale twins are used.
Changes come from outside through `invalidate`, which makes twins stale, not unknown.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any, Final, NamedTuple

from redis.asyncio import Redis

from relay.twins import bounds
from relay.twins.shared import SharedRead, SharedTwins
from relay.twins.source import TwinRecord, TwinSource, TwinSourceError

logger = logging.getLogger(__name__)


class Missing(Enum):
    """Type of `MISSING`: memory does not know, ask `TwinCache.look_up`."""

    MISSING = "missing"


MISSING: Final = Missing.MISSING


class TwinLookupError(Exception):
    """The source is away and there is not even a stale copy."""


class _Held(NamedTuple):
    record: TwinRecord
    refresh_at: float
    stale_at: float


class TwinCache:
    """The twins one worker knows. Used on one event loop.

    Attributes:
        generation: grows with every `invalidate`; whoever keeps a record compares it.
    """

    def __init__(
        self,
        source: TwinSource,
        redis: Redis | None = None,
        clock: Callable[[], float] = time.monotonic,
        *,
        wall_clock: Callable[[], float] = time.time,
        life_s: float = 60.0,
        unknown_s: float = 5.0,
    ) -> None:
        """
        Args:
            source: the record.
            redis: client of the shared layer; None goes from memory straight to the source.
            clock: seconds, monotonic.
            wall_clock: unix time in seconds, for entries that other processes read.
            life_s: how long a twin is believed.
            unknown_s: how long it is believed that there is no such twin.
        """
        self.generation = 0
        self._source = source
        self._shared = SharedTwins(redis, wall_clock) if redis is not None else None
        self._clock = clock
        self._life_s = life_s
        self._unknown_s = unknown_s
        self._held: dict[int, _Held] = {}
        self._unknown_until: dict[int, float] = {}
        self._highest = 0
        self._highest_until = float("-inf")
        # One future for each id being looked up. An invalidated id loses its future: what that
        # fetch brings is handed to those who wait for it already, and not kept.
        self._flights: dict[int, asyncio.Future[TwinRecord | None]] = {}
        self._wanted: dict[int, asyncio.Future[TwinRecord | None]] = {}
        self._fetches: set[asyncio.Task[None]] = set()
        self._patience: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._held)

    def get(self, twin: int) -> TwinRecord | Missing | None:
        """What memory knows: a record, None (there is no such twin), or `MISSING`."""
        now = self._clock()
        held = self._held.get(twin)
        if held is not None:
            if now < held.refresh_at:
                return held.record
            if now < held.stale_at:
                self._refresh(twin)
                return held.record
            return MISSING
        if now < self._unknown_until.get(twin, now):
            return None
        if self._highest < twin and now < self._highest_until:
            return None
        return MISSING

    async def look_up(self, twin: int) -> TwinRecord | None:
        """The twin, from wherever it is known; None when there is no such twin.

        Raises:
            TwinLookupError: the source is away and no stale copy is left, or too many look-ups
                wait already.
        """
        known = self.get(twin)
        if known is not MISSING:
            return known
        # Shielded: a caller that goes away must not cancel the look-up of the others.
        return await asyncio.shield(self._flight(twin))

    def invalidate(self, ids: Iterable[int] | None) -> None:
        """Make twins stale after a change.

        Args:
            ids: the changed ones; None for all.
        """
        self.generation += 1
        self._highest_until = float("-inf")
        if ids is None:
            self._unknown_until.clear()
            self._flights.clear()
            stale = list(self._held)
        else:
            stale = list(ids)
        for twin in stale:
            self._unknown_until.pop(twin, None)
            self._flights.pop(twin, None)
            held = self._held.get(twin)
            if held is not None:
                self._held[twin] = _Held(held.record, float("-inf"), float("-inf"))

    async def close(self) -> None:
        """End the fetches under way; those who wait for one get `TwinLookupError`."""
        if self._patience is not None:
            self._patience.cancel()
        fetches = list(self._fetches)
        for fetch in fetches:
            fetch.cancel()
        await asyncio.gather(*fetches, return_exceptions=True)
        self._fail(self._wanted, "the twin cache was closed")
        self._wanted = {}

    # Fetching

    def _refresh(self, twin: int) -> None:
        if twin not in self._flights and len(self._wanted) < bounds.MAX_WAITING_LOOK_UPS:
            self._flight(twin)

    def _flight(self, twin: int) -> asyncio.Future[TwinRecord | None]:
        flight = self._flights.get(twin)
        if flight is not None:
            return flight
        if len(self._wanted) >= bounds.MAX_WAITING_LOOK_UPS:
            raise TwinLookupError(f"{len(self._wanted)} twin look-ups wait already")
        # An invalidated id may be wanted a second time before its first fetch began: that fetch
        # begins after the change, so it serves both.
        waiting = self._wanted.get(twin)
        if waiting is not None:
            self._flights[twin] = waiting
            return waiting
        loop = asyncio.get_running_loop()
        flight = loop.create_future()
        flight.add_done_callback(_retrieve)
        self._flights[twin] = self._wanted[twin] = flight
        if not self._fetches:
            # The task begins in the next turn of the loop: all misses of this turn join it.
            self._begin_fetch()
        elif self._patience is None:
            # The fetch under way takes those that gather meanwhile with it when it is done; if it
            # is slow, another one does.
            self._patience = loop.call_later(bounds.GATHER_S, self._lose_patience)
        return flight

    def _begin_fetch(self) -> None:
        self._fetches.add(asyncio.get_running_loop().create_task(self._fetch_wanted()))

    def _lose_patience(self) -> None:
        self._patience = None
        if self._wanted and len(self._fetches) < bounds.MAX_PARALLEL_FETCHES:
            self._begin_fetch()

    async def _fetch_wanted(self) -> None:
        try:
            while self._wanted:
                await self._fetch_batch()
        finally:
            # Not by a callback: a miss before it ran would wait for a fetch that is over.
            self._fetches.discard(asyncio.current_task())  # type: ignore[arg-type]

    async def _fetch_batch(self) -> None:
        batch = dict(itertools.islice(self._wanted.items(), bounds.MAX_FETCH))
        for twin in batch:
            del self._wanted[twin]
        try:
            found = await self._fetch(list(batch))
        except asyncio.CancelledError:
            self._fail(batch, "the twin cache was closed")
            raise
        except TwinSourceError as error:
            self._use_stale(batch, str(error))
        except Exception:
            logger.exception("twin look-up failed")
            self._use_stale(batch, "internal error")
        else:
            self._land(batch, found)

    async def _fetch(self, ids: list[int]) -> dict[int, TwinRecord]:
        shared = SharedRead({}, None)
        if self._shared is not None:
            shared = await self._shared.read(ids)
        found = dict(shared.fresh)
        missing = [twin for twin in ids if twin not in found]
        if missing:
            missing = await self._possible(missing)
        if missing:
            fetched = await self._source.fetch(missing)
            found.update(fetched)
            if self._shared is not None and shared.version is not None:
                await self._shared.store(fetched, shared.version)
        return found

    async def _possible(self, ids: list[int]) -> list[int]:
        """Those that are not above the highest twin there is: the others need no query."""
        if max(ids) > self._highest and self._clock() >= self._highest_until:
            generation = self.generation
            self._highest = await self._source.highest_id()
            if generation == self.generation:
                self._highest_until = self._clock() + self._unknown_s
        return [twin for twin in ids if twin <= self._highest]

    def _land(
        self,
        batch: dict[int, asyncio.Future[TwinRecord | None]],
        found: dict[int, TwinRecord],
    ) -> None:
        now = self._clock()
        for twin, flight in batch.items():
            record = found.get(twin)
            if self._flights.get(twin) is flight:
                del self._flights[twin]
                self._keep(twin, record, now)
            if not flight.done():
                flight.set_result(record)

    def _keep(self, twin: int, record: TwinRecord | None, now: float) -> None:
        self._held.pop(twin, None)
        self._unknown_until.pop(twin, None)
        if record is None:
            _make_room(self._unknown_until, bounds.MAX_CACHED_UNKNOWN)
            self._unknown_until[twin] = now + self._unknown_s
            return
        _make_room(self._held, bounds.MAX_CACHED_TWINS)
        refresh_at = now + self._life_s * bounds.REFRESH_SHARE
        self._held[twin] = _Held(record, refresh_at, now + self._life_s)

    def _use_stale(self, batch: dict[int, asyncio.Future[TwinRecord | None]], detail: str) -> None:
        """The source is away: what was known goes on being used, without waiting for the source.

        A twin in use is asked for again every `RETRY_S`, in the background.
        """
        now = self._clock()
        failed = {}
        for twin, flight in batch.items():
            held = self._held.get(twin)
            if held is None:
                failed[twin] = flight
                continue
            if self._flights.get(twin) is flight:
                del self._flights[twin]
                self._held[twin] = _Held(held.record, now + bounds.RETRY_S, now + self._life_s)
            if not flight.done():
                flight.set_result(held.record)
        self._fail(failed, detail)

    def _fail(self, batch: dict[int, asyncio.Future[TwinRecord | None]], detail: str) -> None:
        for twin, flight in batch.items():
            if self._flights.get(twin) is flight:
                del self._flights[twin]
            if not flight.done():
                flight.set_exception(TwinLookupError(f"twin {twin}: {detail}"))


def _make_room(entries: dict[int, Any], limit: int) -> None:
    """Forget the oldest entry of a full dictionary, which keeps the order of insertion."""
    if len(entries) >= limit:
        del entries[next(iter(entries))]


def _retrieve(flight: asyncio.Future[TwinRecord | None]) -> None:
    """A background refresh has nobody waiting: its failure was handled, not forgotten."""
    if not flight.cancelled():
        flight.exception()

"""Cache of twins by id for the hot path: reads from memory need no query, no waiting and no lock.

A look-up goes from the process's memory to the hash in Redis that all workers share, and then to
the source. Concurrent misses are merged into one fetch for many ids, first from the hash, then from
the source: a slow source does not delay twins that the hash has. A record is valid for `life_s`; a
record in use is refreshed in the background before it expires. While the source is unavailable or
slow, stale records are used.

Changes are reported through `invalidate`, which makes records stale but keeps them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from enum import Enum
from typing import Any, Final, NamedTuple

from relay.twins import bounds
from relay.twins.batches import Batches, Flight
from relay.twins.shared import Ask, SharedTwins
from relay.twins.source import TwinRecord, TwinSource, TwinSourceError

logger = logging.getLogger(__name__)


class Missing(Enum):
    """Type of `MISSING`: memory has no answer, so the caller must use `TwinCache.look_up`."""

    MISSING = "missing"


MISSING: Final = Missing.MISSING
NOTHING: Final[Mapping[int, TwinRecord]] = {}


class TwinLookupError(Exception):
    """The source is unavailable and there is no stale copy either."""


class _Held(NamedTuple):
    record: TwinRecord
    refresh_at: float
    stale_at: float
    late: bool = False  # the source was unavailable or slow: this is the earlier record


class TwinCache:
    """Cache of the twins that one worker knows. Used on one event loop.

    Attributes:
        generation: number that grows with every `invalidate`; callers that keep a record compare
            it.
    """

    def __init__(
        self,
        source: TwinSource,
        ask_redis: Ask | None = None,
        clock: Callable[[], float] = time.monotonic,
        *,
        wall_clock: Callable[[], float] = time.time,
        life_s: float = 60.0,
        unknown_s: float = 5.0,
    ) -> None:
        """Initialise the cache.

        Args:
            source: source of twins.
            ask_redis: function that sends a command to the shared cache; if None, look-ups go from
                memory directly to the source.
            clock: monotonic clock in seconds.
            wall_clock: unix time in seconds, for entries that other processes read.
            life_s: seconds for which a record is valid.
            unknown_s: seconds for which it is cached that a twin does not exist.
        """
        self.generation = 0
        self._source = source
        self._shared = SharedTwins(ask_redis, wall_clock) if ask_redis is not None else None
        self._clock = clock
        self._life_s = life_s
        self._unknown_s = unknown_s
        self._held: dict[int, _Held] = {}
        self._unknown_until: dict[int, float] = {}
        self._highest = 0
        self._highest_until = float("-inf")
        # One future for each id being looked up. An invalidated id loses its future: the result of
        # that fetch goes to callers that already wait for it, and is not cached.
        self._flights: dict[int, Flight] = {}
        self._source_failed = False
        self._return: asyncio.Task[None] | None = None  # queries an unavailable source, see below
        self._for_source = Batches(self._ask_source)
        self._near = Batches(self._ask_near)
        self._stages: tuple[Batches, ...] = (self._for_source,)
        if self._shared is not None:
            self._stages = (Batches(self._ask_shared), self._for_source)

    def __len__(self) -> int:
        return len(self._held)

    def get(self, twin: int) -> TwinRecord | Missing | None:
        """Return what memory knows: a record, None (there is no such twin), or `MISSING`."""
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

    def doubts(self, twin: int) -> bool:
        """Check whether the record of a twin is an earlier one, used because the source failed."""
        held = self._held.get(twin)
        return held is not None and held.late

    async def look_up(self, twin: int) -> TwinRecord | None:
        """Return a twin from memory, the shared cache or the source; None if there is no such twin.

        Raises:
            TwinLookupError: the source is unavailable and no stale copy is left, or too many
                look-ups wait already.
        """
        known = self.get(twin)
        if known is not MISSING:
            return known
        stale = self._held.get(twin)
        flight = self._flight(twin)
        if stale is not None:
            await asyncio.wait({flight}, timeout=bounds.PATIENCE_S)
            if not flight.done():
                if self._held.get(twin) is stale:  # others use it too, until an answer arrives
                    self._held[twin] = self._late(stale.record)
                return stale.record
        # Shielded: a caller that is cancelled must not cancel the look-up of the others.
        return await asyncio.shield(flight)

    def flight(self, twin: int) -> Flight | None:
        """Begin or join a look-up of a twin that memory does not know; None if memory has an old
        copy, for which `look_up` must be used.

        The future is shared: it must not be cancelled.

        Raises:
            TwinLookupError: too many look-ups wait already.
        """
        return None if twin in self._held else self._flight(twin)

    async def look_near(self, twin: int) -> TwinRecord | Missing | None:
        """Return what memory or the shared cache knows, without a query to the source."""
        known = self.get(twin)
        if known is not MISSING or self._shared is None:
            return known
        flight: Flight = asyncio.get_running_loop().create_future()
        flight.add_done_callback(_retrieve)
        self._near.put(twin, flight)
        # Shielded: other callers may wait for the same future.
        return await asyncio.shield(flight) or MISSING

    def invalidate(self, ids: Iterable[int] | None) -> None:
        """Make twins stale after a change.

        Args:
            ids: changed twins; None for all.
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
        """Cancel the fetches in progress; callers that wait for one get `TwinLookupError`."""
        if self._return is not None:
            self._return.cancel()
            await asyncio.wait({self._return})
        for batches in (self._near, *self._stages):
            await batches.close()
            self._fail(batches.waiting, "the twin cache was closed")
            batches.waiting.clear()

    # Fetching

    def _refresh(self, twin: int) -> None:
        if twin not in self._flights and self._waiting() < bounds.MAX_WAITING_LOOK_UPS:
            self._flight(twin)

    def _waiting(self) -> int:
        return sum(len(batches.waiting) for batches in self._stages)

    def _flight(self, twin: int) -> Flight:
        flight = self._flights.get(twin)
        if flight is not None:
            return flight
        if self._waiting() >= bounds.MAX_WAITING_LOOK_UPS:
            raise TwinLookupError(f"{self._waiting()} twin look-ups wait already")
        # An invalidated id may be requested again before its first fetch began: that fetch begins
        # after the change, so it serves both.
        for batches in self._stages:
            if twin in batches.waiting:
                return self._flights.setdefault(twin, batches.waiting[twin])
        flight = asyncio.get_running_loop().create_future()
        flight.add_done_callback(_retrieve)
        self._flights[twin] = flight
        self._stages[0].put(twin, flight)
        return flight

    async def _ask_shared(self, batch: dict[int, Flight]) -> None:
        assert self._shared is not None
        try:
            found = await self._shared.read(list(batch))
        except asyncio.CancelledError:
            self._fail(batch, "the twin cache was closed")
            raise
        self._land({twin: flight for twin, flight in batch.items() if twin in found}, found)
        for twin, flight in batch.items():
            if twin not in found:
                self._for_source.put(twin, flight)

    async def _ask_near(self, batch: dict[int, Flight]) -> None:
        assert self._shared is not None
        generation = self.generation
        try:
            found = await self._shared.read(list(batch))
        except asyncio.CancelledError:
            self._fail(batch, "the twin cache was closed")
            raise
        if generation != self.generation:  # some twins may have changed meanwhile
            found = {}
        now = self._clock()
        for twin, flight in batch.items():
            record = found.get(twin)
            if record is not None and twin not in self._flights:
                self._keep(twin, record, now)
            if not flight.done():
                flight.set_result(record)

    async def _ask_source(self, batch: dict[int, Flight]) -> None:
        try:
            found = await self._fetch(list(batch))
        except asyncio.CancelledError:
            self._fail(batch, "the twin cache was closed")
            raise
        except TwinSourceError as error:
            if not self._source_failed:
                # Log this once, not for every look-up until the source works again.
                logger.warning("twins cannot be looked up, known ones are used: %s", error)
            self._source_failed = True
            if self._return is None or self._return.done():
                self._return = asyncio.create_task(self._await_return())
            self._use_stale(batch, str(error), error.known)
        except Exception:
            logger.exception("twin look-up failed")
            self._use_stale(batch, "internal error")
        else:
            if self._source_failed:
                logger.info("twins can be looked up again")
            self._source_failed = False
            self._land(batch, found)

    async def _await_return(self) -> None:
        """Query an unavailable source every `RETRY_S`: without traffic nothing else would, and the
        worker would report the source as unavailable long after it has recovered.
        """
        while self._source.away:
            await asyncio.sleep(bounds.RETRY_S)
            with suppress(TwinSourceError):
                await self._source.highest_id()

    async def _fetch(self, ids: list[int]) -> dict[int, TwinRecord]:
        # Read before the source is queried: if a change is announced later, the answer must not be
        # stored in the shared cache.
        version = await self._shared.version() if self._shared is not None else None
        possible = await self._possible(ids)
        found = await self._source.fetch(possible) if possible else {}
        if self._shared is not None and version is not None:
            await self._shared.store(found, version)
        return found

    async def _possible(self, ids: list[int]) -> list[int]:
        """Return the ids that are not above the highest twin; the others need no query."""
        if max(ids) > self._highest and self._clock() >= self._highest_until:
            generation = self.generation
            try:
                self._highest = await self._source.highest_id()
            except TwinSourceError:
                return ids  # what the source knows nevertheless, it returns for these ids
            if generation == self.generation:
                self._highest_until = self._clock() + self._unknown_s
        return [twin for twin in ids if twin <= self._highest]

    def _land(self, batch: dict[int, Flight], found: Mapping[int, TwinRecord]) -> None:
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

    def _use_stale(
        self, batch: dict[int, Flight], detail: str, known: Mapping[int, TwinRecord] = NOTHING
    ) -> None:
        """Answer a batch with earlier records, as the source failed; look-ups then use these.

        A twin in use is queried again every `RETRY_S`, in the background.
        """
        failed = {}
        for twin, flight in batch.items():
            held = self._held.pop(twin, None)
            record = known.get(twin) or (held.record if held is not None else None)
            if record is None:
                failed[twin] = flight
                continue
            if self._flights.get(twin) is flight:
                del self._flights[twin]
                _make_room(self._held, bounds.MAX_CACHED_TWINS)
                held = self._late(record)
            if held is not None:
                self._held[twin] = held
            if not flight.done():
                flight.set_result(record)
        self._fail(failed, detail)

    def _late(self, record: TwinRecord) -> _Held:
        now = self._clock()
        return _Held(record, now + bounds.RETRY_S, now + self._life_s, late=True)

    def _fail(self, batch: dict[int, Flight], detail: str) -> None:
        for twin, flight in batch.items():
            if self._flights.get(twin) is flight:
                del self._flights[twin]
            if not flight.done():
                flight.set_exception(TwinLookupError(f"twin {twin}: {detail}"))


def _make_room(entries: dict[int, Any], limit: int) -> None:
    """Drop the oldest entry of a full dictionary, which keeps the order of insertion."""
    if len(entries) >= limit:
        del entries[next(iter(entries))]


def _retrieve(flight: Flight) -> None:
    """Retrieve the exception of a flight: a background refresh has no caller that does, and asyncio
    would log it as never retrieved.
    """
    if not flight.cancelled():
        flight.exception()

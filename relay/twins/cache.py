"""Twins by id, as the hot path needs them: from memory, without a query, a wait or a lock.

A look-up goes from the process's memory to the hash all workers share to the source. Concurrent
misses are gathered into one fetch for many ids, first of the hash, then of the source: a slow
source does not hold up what the hash knows. A twin is believed for `life_s`; one that is still in
use is refreshed in the background before that. While the source is away or slow stale twins are
used.
Changes come from outside through `invalidate`, which makes twins stale, not unknown.
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
    """Type of `MISSING`: memory does not know, ask `TwinCache.look_up`."""

    MISSING = "missing"


MISSING: Final = Missing.MISSING
NOTHING: Final[Mapping[int, TwinRecord]] = {}


class TwinLookupError(Exception):
    """The source is away and there is not even a stale copy."""


class _Held(NamedTuple):
    record: TwinRecord
    refresh_at: float
    stale_at: float
    late: bool = False  # the source was away or slow: this is what was known before


class TwinCache:
    """The twins one worker knows. Used on one event loop.

    Attributes:
        generation: grows with every `invalidate`; whoever keeps a record compares it.
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
        """
        Args:
            source: the record.
            ask_redis: sends a command to the shared layer; None goes from memory straight to the
                source.
            clock: seconds, monotonic.
            wall_clock: unix time in seconds, for entries that other processes read.
            life_s: how long a twin is believed.
            unknown_s: how long it is believed that there is no such twin.
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
        # One future for each id being looked up. An invalidated id loses its future: what that
        # fetch brings is handed to those who wait for it already, and not kept.
        self._flights: dict[int, Flight] = {}
        self._source_failed = False
        self._return: asyncio.Task[None] | None = None  # asks a source that is away, see below
        self._for_source = Batches(self._ask_source)
        self._near = Batches(self._ask_near)
        self._stages: tuple[Batches, ...] = (self._for_source,)
        if self._shared is not None:
            self._stages = (Batches(self._ask_shared), self._for_source)

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

    def doubts(self, twin: int) -> bool:
        """Whether memory has a twin that the source could not be asked about when it was wanted."""
        held = self._held.get(twin)
        return held is not None and held.late

    async def look_up(self, twin: int) -> TwinRecord | None:
        """The twin, from wherever it is known; None when there is no such twin.

        Raises:
            TwinLookupError: the source is away and no stale copy is left, or too many look-ups
                wait already.
        """
        known = self.get(twin)
        if known is not MISSING:
            return known
        stale = self._held.get(twin)
        flight = self._flight(twin)
        if stale is not None:
            await asyncio.wait({flight}, timeout=bounds.PATIENCE_S)
            if not flight.done():
                if self._held.get(twin) is stale:  # the others use it, too, until an answer comes
                    self._held[twin] = self._late(stale.record)
                return stale.record
        # Shielded: a caller that goes away must not cancel the look-up of the others.
        return await asyncio.shield(flight)

    def flight(self, twin: int) -> Flight | None:
        """Begin to look up a twin that memory does not know, or wait with those who have; None
        where it has an old copy, which takes `look_up`.

        The future is shared: it must not be cancelled.

        Raises:
            TwinLookupError: too many look-ups wait already.
        """
        return None if twin in self._held else self._flight(twin)

    async def look_near(self, twin: int) -> TwinRecord | Missing | None:
        """What memory or the shared cache knows: the source is not asked."""
        known = self.get(twin)
        if known is not MISSING or self._shared is None:
            return known
        flight: Flight = asyncio.get_running_loop().create_future()
        flight.add_done_callback(_retrieve)
        self._near.put(twin, flight)
        # Shielded: others may wait for the same one.
        return await asyncio.shield(flight) or MISSING

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
        # An invalidated id may be wanted a second time before its first fetch began: that fetch
        # begins after the change, so it serves both.
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
        if generation != self.generation:  # some of them may have changed meanwhile
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
                # Once, not for every look-up meanwhile.
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
        """Ask a source that is away every `RETRY_S`: without traffic nobody else would, and the
        worker would say `away` of one that has long been back."""
        while self._source.away:
            await asyncio.sleep(bounds.RETRY_S)
            with suppress(TwinSourceError):
                await self._source.highest_id()

    async def _fetch(self, ids: list[int]) -> dict[int, TwinRecord]:
        # Before the source is asked: what was announced later makes its answer unfit to be shared.
        version = await self._shared.version() if self._shared is not None else None
        possible = await self._possible(ids)
        found = await self._source.fetch(possible) if possible else {}
        if self._shared is not None and version is not None:
            await self._shared.store(found, version)
        return found

    async def _possible(self, ids: list[int]) -> list[int]:
        """Those that are not above the highest twin there is: the others need no query."""
        if max(ids) > self._highest and self._clock() >= self._highest_until:
            generation = self.generation
            try:
                self._highest = await self._source.highest_id()
            except TwinSourceError:
                return ids  # what it knows all the same, it says when it is asked for them
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
        """The source is away: what was known goes on being used, without waiting for the source.

        A twin in use is asked for again every `RETRY_S`, in the background.
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
    """Forget the oldest entry of a full dictionary, which keeps the order of insertion."""
    if len(entries) >= limit:
        del entries[next(iter(entries))]


def _retrieve(flight: Flight) -> None:
    """A background refresh has nobody waiting: its failure was handled, not forgotten."""
    if not flight.cancelled():
        flight.exception()

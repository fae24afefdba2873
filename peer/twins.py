"""The twins a peer talks to: where they are looked up, and which are in memory.

A source (`open_source`: the chain, a CSV file or a relay's registry) knows all twins and may be
slow or away. `TwinCache` stands before it: `peek` answers at once or not at all, `get` asks the
source when it must. Both sides of a conversation look up every message, so the cache is what keeps
a peer fast, and 5 minutes what a changed key takes to be known (`forget` is quicker, for when a
message does not open).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from chain.urls import shown
from peer.errors import TwinsAwayError

__all__ = ["Twin", "TwinCache", "TwinSource", "TwinsAwayError", "open_source"]

logger = logging.getLogger(__name__)

FRESH_S: Final = 300.0
"""How long a twin is taken as it was read; rmb-peer 1.5 keeps them as long."""

UNKNOWN_S: Final = 5.0
"""How long a twin is taken as not there: it may be made the next moment."""

MAX_TWINS: Final = 10_000
"""In memory, a few hundred bytes each."""

RETRY_S: Final = 1.0
"""How long a twin whose time is over is still used before a source that was away is asked again."""


class Twin(NamedTuple):
    """A twin, as far as a peer cares."""

    id: int
    account: bytes
    """Its public signing key, 32 bytes."""
    pk: bytes | None
    """Its public encryption key, 33 bytes; None: what is sent to it is not encrypted."""
    relays: tuple[str, ...]
    """Domains of the relays where it can be reached."""


class TwinSource(Protocol):
    """Somebody who knows all twins."""

    async def by_id(self, twin_id: int) -> Twin | None:
        """The twin with an id, None if there is none.

        Raises:
            TwinsAwayError: it can't be said now.
        """

    async def by_account(self, account: bytes) -> Twin | None:
        """The twin of an account, None if it has none.

        Raises:
            TwinsAwayError: it can't be said now.
        """

    async def aclose(self) -> None:
        """Let go of connections and threads."""


def open_source(spec: str | None, substrate: Sequence[str] = ()) -> TwinSource:
    """The source that is meant by a peer's options.

    Args:
        spec: path of a CSV file, or the http(s) URL of a relay's site; None: the chain.
        substrate: URLs of chain nodes.

    Raises:
        ValueError: neither is given, or a URL is invalid.
        TwinsAwayError: the file can't be read.
    """
    if spec is None:
        if not substrate:
            raise ValueError("twins: give a file, the URL of a relay's registry, or chain nodes")
        from peer.twin_sources.chain import ChainTwins

        return ChainTwins(substrate)
    if spec.startswith(("http://", "https://")):
        from peer.twin_sources.rest import RestTwins

        return RestTwins(spec)
    if "://" in spec:
        raise ValueError(f"twins: {shown(spec)} is neither an http:// or https:// URL nor a file")
    from peer.twin_sources.file import FileTwins

    return FileTwins(spec)


class _Entry(NamedTuple):
    twin: Twin | None
    until: float  # fresh before


class TwinCache:
    """Twins in memory, in front of a source.

    Belongs to one event loop. Who asks for a twin that is being looked up waits for that answer.

    Args:
        source: asked for what is not there; the cache closes it.
        clock: seconds, monotonic.
        capacity: twins kept at most; the ones looked up longest ago go first.
    """

    def __init__(
        self,
        source: TwinSource,
        *,
        clock: Callable[[], float] = time.monotonic,
        capacity: int = MAX_TWINS,
    ) -> None:
        self.source = source
        self._clock = clock
        self._capacity = capacity
        self._entries: dict[int, _Entry] = {}
        self._asking: dict[int, asyncio.Task[Twin | None]] = {}
        self._tasks: set[asyncio.Task[Twin | None]] = set()  # with those nobody may join any more

    def peek(self, twin_id: int) -> Twin | None:
        """A twin that is fresh in memory; None says nothing."""
        entry = self._entries.get(twin_id)
        return entry.twin if entry is not None and entry.until > self._clock() else None

    async def get(self, twin_id: int) -> Twin | None:
        """A twin, None if there is none.

        A source that is away is not noticed as long as an older answer is in memory.

        Raises:
            TwinsAwayError: the source is away and nothing is known.
        """
        entry = self._entries.get(twin_id)
        if entry is not None and entry.until > self._clock():
            return entry.twin
        asking = self._asking.get(twin_id)
        if asking is None:
            asking = asyncio.create_task(self._ask(twin_id))
            self._asking[twin_id] = asking
            self._tasks.add(asking)
            asking.add_done_callback(lambda done: self._asked(twin_id, done))
        # One who gives up must not take the answer from the others.
        return await asyncio.shield(asking)

    def forget(self, twin_id: int) -> None:
        """Ask the source the next time; the old answer is of use only while it is away.

        So is that of a question under way: it may have been read before what has changed.
        """
        self._asking.pop(twin_id, None)
        entry = self._entries.get(twin_id)
        if entry is not None:
            self._entries[twin_id] = entry._replace(until=float("-inf"))

    def put(self, twin: Twin) -> None:
        """Take a twin that was read elsewhere just now."""
        self._store(twin.id, _Entry(twin, self._clock() + FRESH_S))

    async def aclose(self) -> None:
        """Give up what is being looked up, and close the source."""
        for asking in self._tasks:
            asking.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.source.aclose()

    async def _ask(self, twin_id: int) -> Twin | None:
        try:
            twin = await self.source.by_id(twin_id)
        except TwinsAwayError as error:
            entry = self._entries.get(twin_id)
            if entry is None or entry.twin is None:
                raise  # that there was none some seconds ago says nothing
            logger.warning("twin %d: using what is known of it: %s", twin_id, error)
            self._answered(twin_id, _Entry(entry.twin, self._clock() + RETRY_S))
            return entry.twin
        life_s = UNKNOWN_S if twin is None else FRESH_S
        self._answered(twin_id, _Entry(twin, self._clock() + life_s))
        return twin

    def _answered(self, twin_id: int, entry: _Entry) -> None:
        if self._asking.get(twin_id) is not asyncio.current_task():  # forgotten meanwhile
            entry = entry._replace(until=float("-inf"))
            known = self._entries.get(twin_id)
            if known is not None and (known.until > self._clock() or entry.twin is None):
                return  # the question after it was quicker, or this one says less
        self._store(twin_id, entry)

    def _store(self, twin_id: int, entry: _Entry) -> None:
        entries = self._entries
        entries.pop(twin_id, None)  # to the young end
        if len(entries) >= self._capacity:
            del entries[next(iter(entries))]
        entries[twin_id] = entry

    def _asked(self, twin_id: int, done: asyncio.Task[Twin | None]) -> None:
        self._tasks.discard(done)
        if self._asking.get(twin_id) is done:
            del self._asking[twin_id]
        if not done.cancelled():
            done.exception()  # whoever waited has it; nobody may have

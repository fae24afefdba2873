"""Look-up and cache of the twins that a peer talks to.

A source (`open_source`: the chain, a CSV file or a relay's registry) knows all twins and may be
slow or unavailable. `TwinCache` is in front of it: `peek` answers from memory or not at all, `get`
asks the source if necessary. Both sides of a conversation look up the twin of every message, so the
cache keeps a peer fast. A changed key is noticed after up to 5 minutes, or sooner with `forget`,
which is called when a message cannot be decrypted.
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
"""Seconds for which a twin that was read is considered fresh, the same as in rmb-peer 1.5."""

UNKNOWN_S: Final = 5.0
"""Seconds for which a twin is considered not to exist; short, as it may be created any moment."""

MAX_TWINS: Final = 10_000
"""Maximum number of twins in memory, a few hundred bytes each."""

RETRY_S: Final = 1.0
"""Seconds for which a stale twin is still used before an unavailable source is asked again."""


class Twin(NamedTuple):
    """A twin, reduced to what a peer needs."""

    id: int
    account: bytes
    """Public signing key, 32 bytes."""
    pk: bytes | None
    """Public encryption key, 33 bytes; None: messages to the twin are not encrypted."""
    relays: tuple[str, ...]
    """Domains of the relays where the twin can be reached."""


class TwinSource(Protocol):
    """A source that knows all twins."""

    async def by_id(self, twin_id: int) -> Twin | None:
        """Return the twin with an id, None if it does not exist.

        Raises:
            TwinsAwayError: the source cannot answer at present.
        """

    async def by_account(self, account: bytes) -> Twin | None:
        """Return the twin of an account, None if the account has none.

        Raises:
            TwinsAwayError: the source cannot answer at present.
        """

    async def aclose(self) -> None:
        """Release connections and threads."""


def open_source(spec: str | None, substrate: Sequence[str] = ()) -> TwinSource:
    """Open the source of twins that a peer's options select.

    Args:
        spec: path of a CSV file, or the http(s) URL of a relay's site; None: the chain.
        substrate: URLs of chain nodes.

    Raises:
        ValueError: neither is given, or a URL is invalid.
        TwinsAwayError: the file cannot be read.
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
    """Cache of twins in front of a source.

    Belongs to one event loop. Concurrent requests for the same twin share one look-up.

    Args:
        source: asked for twins that are not in the cache; the cache closes it.
        clock: monotonic clock, in seconds.
        capacity: maximum number of twins kept; those looked up longest ago are dropped first.
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
        self._tasks: set[asyncio.Task[Twin | None]] = set()  # including forgotten look-ups

    def peek(self, twin_id: int) -> Twin | None:
        """Return a twin that is fresh in memory; None does not mean that it does not exist."""
        entry = self._entries.get(twin_id)
        return entry.twin if entry is not None and entry.until > self._clock() else None

    async def get(self, twin_id: int) -> Twin | None:
        """Return a twin, None if it does not exist.

        An older answer in memory is used while the source is unavailable.

        Raises:
            TwinsAwayError: the source is unavailable and no older answer is in memory.
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
        # A caller that is cancelled must not cancel the look-up for the others.
        return await asyncio.shield(asking)

    def forget(self, twin_id: int) -> None:
        """Ask the source at the next request; the old answer is used only while it is unavailable.

        The same applies to a look-up in progress: it may have read the twin before it changed.
        """
        self._asking.pop(twin_id, None)
        entry = self._entries.get(twin_id)
        if entry is not None:
            self._entries[twin_id] = entry._replace(until=float("-inf"))

    def put(self, twin: Twin) -> None:
        """Store a twin that was just read elsewhere."""
        self._store(twin.id, _Entry(twin, self._clock() + FRESH_S))

    async def aclose(self) -> None:
        """Cancel the look-ups in progress, and close the source."""
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
                raise  # the twin may have been created since an earlier "none"
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
                return  # a later look-up was faster, or this answer is less useful
        self._store(twin_id, entry)

    def _store(self, twin_id: int, entry: _Entry) -> None:
        entries = self._entries
        entries.pop(twin_id, None)  # so that it is inserted as the newest
        if len(entries) >= self._capacity:
            del entries[next(iter(entries))]
        entries[twin_id] = entry

    def _asked(self, twin_id: int, done: asyncio.Task[Twin | None]) -> None:
        self._tasks.discard(done)
        if self._asking.get(twin_id) is done:
            del self._asking[twin_id]
        if not done.cancelled():
            done.exception()  # mark as retrieved: perhaps no caller waited

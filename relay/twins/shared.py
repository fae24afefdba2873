"""The twin cache that all workers share: hash `relay:twin` in Redis, between memory and the source.

A worker that fetches a twin from the source reads the version of the cache first, and passes it
when it stores the twin: a twin fetched before a change was announced is never stored after it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final

import hiredis
from redis.exceptions import RedisError

from redispipe import scripts
from relay.queues import keys
from relay.twins.bounds import SHARED_LIFE_S, SHARED_TIMEOUT_S
from relay.twins.source import TwinRecord, from_text, to_text

logger = logging.getLogger(__name__)

Ask = Callable[..., Awaitable[Any]]
"""Function that sends one command, given as its words, and awaits the reply, with text as bytes. A
worker passes its commit connection: a client of the library costs five times as much for each
command."""

FAILURES: Final = (RedisError, hiredis.HiredisError, OSError, RuntimeError)
"""Exceptions of a command when Redis is unavailable. A `RuntimeError` is from uvloop: the transport
was closed before the write."""

FILL_SCRIPT: Final = scripts.source(Path(__file__).with_name("lua"), "fill")


class SharedTwins:
    """The Redis layer of the twin cache. It never raises: without Redis the source is queried."""

    def __init__(self, ask: Ask, wall_clock: Callable[[], float]) -> None:
        """Initialise the layer.

        Args:
            ask: function that sends a command.
            wall_clock: unix time in seconds.
        """
        self._ask = ask
        self._wall_clock = wall_clock

    async def version(self) -> bytes | None:
        """Return the version to pass to `store`; None if Redis does not answer."""
        try:
            async with asyncio.timeout(SHARED_TIMEOUT_S):
                version: Any = await self._ask("GET", keys.TWINS_VERSION)
        except FAILURES as error:
            logger.warning("shared twin cache not readable: %r", error)
            return None
        return bytes(version or b"0")

    async def read(self, ids: Sequence[int]) -> dict[int, TwinRecord]:
        """Return the records that the cache has of some twins and that are recent enough."""
        try:
            async with asyncio.timeout(SHARED_TIMEOUT_S):
                entries: Any = await self._ask("HMGET", keys.TWINS, *ids)
        except FAILURES as error:
            logger.warning("shared twin cache not readable: %r", error)
            return {}
        fresh = {}
        oldest = self._wall_clock() - SHARED_LIFE_S
        for twin, entry in zip(ids, entries, strict=True):
            if entry is None:
                continue
            try:
                record, fetched_at = from_text(twin, entry.decode())
            except ValueError:
                logger.warning("entry of twin %d in %s is malformed, ignored", twin, keys.TWINS)
                continue
            if fetched_at >= oldest:
                fresh[twin] = record
        return fresh

    async def store(self, records: dict[int, TwinRecord], version: bytes) -> None:
        """Store twins that were fetched from the source after `version` was read."""
        if not records:
            return
        now = int(self._wall_clock())
        arguments: list[str | bytes] = [version]
        for twin, record in records.items():
            arguments += (str(twin), to_text(record, now))
        try:
            async with asyncio.timeout(SHARED_TIMEOUT_S):
                await self._ask("EVAL", FILL_SCRIPT, 2, keys.TWINS, keys.TWINS_VERSION, *arguments)
        except FAILURES as error:
            logger.warning("shared twin cache not writable: %r", error)

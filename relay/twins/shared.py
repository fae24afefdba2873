"""The twins all workers share: hash `relay:twin` in Redis, between process memory and the source.

Who fetches a twin from the source reads the version of what is known first, and presents it when it
stores the twin: one fetched before a change was announced is never stored after it.
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
"""Sends one command, given as its words, and awaits the reply, with text as bytes. A worker lends
its commit connection: a client of the library costs five times as much for each command."""

FAILURES: Final = (RedisError, hiredis.HiredisError, OSError, RuntimeError)
"""What a command ends with when Redis is away. A `RuntimeError` is uvloop's: the transport was
closed before the write."""

FILL_SCRIPT: Final = scripts.source(Path(__file__).with_name("lua"), "fill")


class SharedTwins:
    """The Redis layer of the twin cache. It never raises: without Redis the source is asked."""

    def __init__(self, ask: Ask, wall_clock: Callable[[], float]) -> None:
        """
        Args:
            ask: sends a command.
            wall_clock: unix time in seconds.
        """
        self._ask = ask
        self._wall_clock = wall_clock

    async def version(self) -> bytes | None:
        """To be handed to `store`; None when Redis did not answer."""
        try:
            async with asyncio.timeout(SHARED_TIMEOUT_S):
                version: Any = await self._ask("GET", keys.TWINS_VERSION)
        except FAILURES as error:
            logger.warning("shared twin cache not readable: %r", error)
            return None
        return bytes(version or b"0")

    async def read(self, ids: Sequence[int]) -> dict[int, TwinRecord]:
        """Those of some twins that it has, young enough to be used."""
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
        """Keep twins fetched from the source after `version` was read."""
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

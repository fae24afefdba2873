"""The lease that decides which of several bridges holds the session of the bridge's twin."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from redis.asyncio import Redis
from redis.exceptions import RedisError

from lattice.process import goes_on

KEY: Final = "relay:lattice:bridge:session"
TTL_MS: Final = 4_000
RENEW_S: Final = 1.5
"""Seconds between two attempts of each bridge; another bridge takes over within six seconds."""
_RENEW: Final = """
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) and 1 or 0
"""
_RELEASE: Final = """
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0
"""

logger = logging.getLogger(__name__)


class Lease:
    """A lease on a key in Redis: one process holds it for as long as it renews it.

    Attributes:
        held: event that is set while this process holds the lease.
        lost: event that is set while this process does not hold the lease.
    """

    def __init__(self, redis: Redis, holder: str) -> None:
        self.held = asyncio.Event()
        self.lost = asyncio.Event()
        self.lost.set()
        self._redis = redis
        self._holder = holder

    async def keep(self) -> None:
        """Acquire the lease when it is free, and renew it, until cancelled; then release it."""
        try:
            while goes_on():
                try:
                    async with asyncio.timeout(TTL_MS / 1000 - RENEW_S):
                        self._note(bool(await self._run(_RENEW, TTL_MS)))
                except (RedisError, TimeoutError) as error:
                    logger.warning("the lease of the twin's session is not renewed: %s", error)
                    self._note(False)
                await asyncio.sleep(RENEW_S)
        finally:
            self._note(False)
            await self._run(_RELEASE)

    async def _run(self, script: str, *arguments: int) -> int:
        found: int = await self._redis.eval(script, 1, KEY, self._holder, *map(str, arguments))
        return found

    def _note(self, holds: bool) -> None:
        (self.held.set if holds else self.held.clear)()
        (self.lost.clear if holds else self.lost.set)()

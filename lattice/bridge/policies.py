"""The policies of operators, read from Redis at the start and after each change."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from typing import Any, Final

from redis.asyncio import Redis
from redis.exceptions import RedisError

from lattice.process import goes_on
from proto.lattice.policy import MAX_POLICIES, Policies, PolicyError, read_policy

logger = logging.getLogger(__name__)

LOOK_S: Final = 0.5
"""Seconds between two comparisons with Redis, since the message of a change may be lost."""


class LivePolicies:
    """The policies in force; none before Redis was first read.

    Args:
        redis: Redis of the relay.
        key: key of the JSON document.
        channel: channel on which changes are announced.
    """

    def __init__(self, redis: Redis, key: str, channel: str) -> None:
        self.now = Policies([])
        self._redis = redis
        self._key = key
        self._channel = channel
        self._text: bytes | None = None

    async def keep(self) -> None:
        """Follow changes until cancelled. While Redis is unavailable, the last policies apply."""
        while goes_on():
            try:
                async with self._redis.pubsub() as pubsub:
                    await pubsub.subscribe(self._channel)
                    while goes_on():
                        await self.look()
                        await pubsub.get_message(ignore_subscribe_messages=True, timeout=LOOK_S)
            except RedisError as error:
                logger.warning("cannot read the policies: %s", error)
                await asyncio.sleep(LOOK_S)

    async def look(self) -> None:
        """Read the policies from Redis, and put them in force if they changed.

        Raises:
            RedisError: Redis does not answer.
        """
        text: Any = await self._redis.get(self._key)
        if text == self._text:
            return
        self._text = text
        fresh = Policies(_read(text))
        fresh.keep_rates_of(self.now)
        self.now = fresh
        logger.info("policies: %d", len(fresh))


def _read(text: bytes | None) -> list[Any]:
    try:
        documents = json.loads(text or b"[]")
    except ValueError:
        logger.error("the policies in Redis are not JSON; all calls are refused")
        return []
    found = []
    for document in documents[:MAX_POLICIES]:
        with contextlib.suppress(AttributeError):
            try:
                found.append(read_policy(document))
            except PolicyError as error:
                logger.error("policy %r in Redis: %s", document.get("name"), error)
    return found

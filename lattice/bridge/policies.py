"""The policies of operators, as Redis has them: read at the start and at each change."""

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
"""A message that says so may be lost: the policies are compared this often."""


class LivePolicies:
    """Those that hold now; none before the first look.

    Args:
        redis: of the relay.
        key: of the JSON document.
        channel: on which a change is told.
    """

    def __init__(self, redis: Redis, key: str, channel: str) -> None:
        self.now = Policies([])
        self._redis = redis
        self._key = key
        self._channel = channel
        self._text: bytes | None = None

    async def keep(self) -> None:
        """Follow the changes until cancelled. While Redis is away the last policies hold."""
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
        """Read the policies.

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

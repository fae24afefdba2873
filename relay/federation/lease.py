"""The right to drain one shard: held by one drainer at a time, for seconds, and renewed.

Whoever holds it looks at its own clock before each request, so a drainer that was stopped for a
while, or cut off from Redis, sends nothing once another may have taken over.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any, Final

import hiredis

from redispipe.errors import LinkLost
from redispipe.pipe import RedisPipe
from relay.federation import scripts
from relay.ops.lease import new_token
from relay.queues import keys

log = logging.getLogger(__name__)

LEASE_S: Final = 15.0
RENEW_S: Final = 5.0
MARGIN_S: Final = 1.0
"""Before its end the lease counts as gone: clocks of two hosts do not run alike."""
LEFT_S: Final = 86_400
"""How long it is kept what a drainer left; the messages themselves wait less."""
UNKNOWN: Final = b"?"
"""What a drainer that died left."""
MAX_DOUBTFUL: Final = 10_000
"""Ids left for the successor; with more of them it has to be careful with everything."""


class Lease:
    """The lease of one shard, for one drainer.

    It also knows which messages the drainer before may have sent already.
    """

    def __init__(self, pipe: RedisPipe, shard: int) -> None:
        self._doubtful: frozenset[bytes] = frozenset()
        self._doubtful_up_to: tuple[int, int] | None = None  # everything, as the one before died
        self._pipe = pipe
        self._shard = shard
        self._token = new_token()
        self._until = 0.0
        self._renewal: asyncio.Task[None] | None = None

    @property
    def held(self) -> bool:
        """Whether it is surely ours now."""
        return time.monotonic() < self._until

    async def take(self) -> bool:
        """Tries to get it, and keeps it from then on.

        Raises:
            LinkLost: Redis went away.
        """
        asked = time.monotonic()
        names = [
            keys.lease(self._shard),
            keys.left(self._shard),
            keys.outbox(self._shard),
            keys.UNUSED,
        ]
        reply = await self._run("take_lease", names, self._token, int(LEASE_S * 1000), LEFT_S)
        if reply is None:
            return False
        left, newest = reply
        if left == UNKNOWN:
            self._doubtful_up_to = _place(newest)
        else:
            self._doubtful = frozenset(left.split())
        self._until = asked + LEASE_S - MARGIN_S
        self._renewal = asyncio.get_running_loop().create_task(self._renew())
        return True

    def doubts(self, entry_id: bytes) -> bool:
        """Whether a message may have been accepted in a try of the drainer before.

        Messages are asked for in their order.
        """
        if self._doubtful_up_to is not None:
            if _place(entry_id) <= self._doubtful_up_to:
                return True
            self._doubtful_up_to = None
        return entry_id in self._doubtful

    async def release(self, doubtful: list[bytes], read_up_to: bytes) -> None:
        """Gives it back.

        Args:
            doubtful: ids of messages that were read, are left and may have been accepted.
            read_up_to: id of the last message that was read; of those behind it holds what the
                drainer before said.
        """
        self.abandon()
        names = [keys.lease(self._shard), keys.left(self._shard)]
        left = self._left(doubtful, _place(read_up_to))
        await self._run("release_lease", names, self._token, left, LEFT_S)

    def _left(self, doubtful: list[bytes], read_up_to: tuple[int, int]) -> bytes:
        if self._doubtful_up_to is not None and read_up_to < self._doubtful_up_to:
            return UNKNOWN
        unread = [entry_id for entry_id in self._doubtful if _place(entry_id) > read_up_to]
        ids = doubtful + unread
        return b" ".join(ids) if len(ids) <= MAX_DOUBTFUL else UNKNOWN

    def abandon(self) -> None:
        """Lets it run out: the next one will be careful with everything."""
        self._until = 0.0
        if self._renewal is not None:
            self._renewal.cancel()

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(RENEW_S)
            asked = time.monotonic()
            try:
                names = [keys.lease(self._shard)]
                ours = await self._run("renew_lease", names, self._token, int(LEASE_S * 1000))
            except (LinkLost, hiredis.ReplyError) as error:
                log.warning("lease of federation shard %d not renewed: %s", self._shard, error)
                continue
            # What was seen not held stays so: lanes were put aside for the next drainer.
            if not ours or not self.held:
                log.warning("lease of federation shard %d was lost", self._shard)
                self._until = 0.0
                return
            self._until = asked + LEASE_S - MARGIN_S

    async def _run(self, name: str, names: list[str], *arguments: str | bytes | int) -> Any:
        return await self._pipe.call("EVAL", scripts.source(name), len(names), *names, *arguments)


def _place(entry_id: bytes) -> tuple[int, int]:
    """An id of a stream, to be compared."""
    moment, _, serial = entry_id.partition(b"-")
    return int(moment), int(serial)

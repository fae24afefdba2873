"""The lease of a shard: the right to drain it, held by one drainer for seconds, and renewed.

A holder checks its own clock before each request. So a drainer that was suspended for a while, or
cut off from Redis, sends nothing once another may have taken over.
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
"""Seconds before its end at which the lease counts as lost: clocks of two hosts differ."""
LEFT_S: Final = 86_400
"""Seconds for which the record that a drainer leaves is kept; the messages themselves wait less."""
UNKNOWN: Final = b"?"
"""The record left by a drainer that died, or had more than `MAX_DOUBTFUL` ids."""
MAX_DOUBTFUL: Final = 10_000
"""Maximum number of ids left for the successor; with more it treats every message as doubtful."""


class Lease:
    """The lease of one shard, for one drainer.

    It also knows which messages the previous drainer may have sent already.
    """

    def __init__(self, pipe: RedisPipe, shard: int) -> None:
        self._doubtful: frozenset[bytes] = frozenset()
        self._doubtful_up_to: tuple[int, int] | None = None  # set if the previous drainer died
        self._pipe = pipe
        self._shard = shard
        self._token = new_token()
        self._until = 0.0
        self._renewal: asyncio.Task[None] | None = None

    @property
    def held(self) -> bool:
        """Whether the lease is certainly held now."""
        return time.monotonic() < self._until

    async def take(self) -> bool:
        """Try to take the lease, and renew it from then on.

        Returns:
            Whether it was taken.

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
        """Check whether an attempt of the previous drainer may have been accepted.

        Callers must ask about messages in their order.
        """
        if self._doubtful_up_to is not None:
            if _place(entry_id) <= self._doubtful_up_to:
                return True
            self._doubtful_up_to = None
        return entry_id in self._doubtful

    async def release(self, doubtful: list[bytes], read_up_to: bytes) -> None:
        """Release the lease.

        Args:
            doubtful: ids of messages that were read, are left, and may have been accepted.
            read_up_to: id of the last message that was read; for later ones the record of the
                previous drainer still holds.
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
        """Let the lease expire; the next drainer then treats every message as doubtful."""
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
            # A lease that was seen as lost stays lost: lanes were set aside for the next drainer.
            if not ours or not self.held:
                log.warning("lease of federation shard %d was lost", self._shard)
                self._until = 0.0
                return
            self._until = asked + LEASE_S - MARGIN_S

    async def _run(self, name: str, names: list[str], *arguments: str | bytes | int) -> Any:
        return await self._pipe.call("EVAL", scripts.source(name), len(names), *names, *arguments)


def _place(entry_id: bytes) -> tuple[int, int]:
    """Return the id of a stream entry in a form that can be compared."""
    moment, _, serial = entry_id.partition(b"-")
    return int(moment), int(serial)

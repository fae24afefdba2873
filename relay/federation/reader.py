"""One blocked read for all shards that a process drains.

Redis answers it the moment a worker commits a message for another relay. With one read for all
shards a commit that touches several of them costs one answer, and messages that arrive together go
out together. Where commits come faster than a read costs next to nothing, it waits for a few.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Any, Final

import hiredis

from redispipe import resp
from redispipe.errors import LinkLost

if TYPE_CHECKING:
    from relay.federation.sender import Link, Sender
    from relay.federation.shard import Shard

log = logging.getLogger(__name__)

BLOCK_MS: Final = 500
"""Redis answers a read that finds nothing after so long."""
FULL_BLOCK_MS: Final = 100
"""The same while some shard takes nothing: it is asked again then."""
RUSH_READS: Final = 8
RUSH_S: Final = 0.004
"""So many reads in so short a time: commits are small and many, and some go into one read."""
PAUSE_S: Final = 0.001
ANSWER_S: Final = 5.0
"""A connection on which an answer is so late is given up."""
REFUSED_S: Final = 1.0
"""Redis refused the read (it is loading, say): the next attempt."""
UNBLOCK_AGAIN_S: Final = 0.005
"""The read that was to end had not begun: the next attempt to end it."""


class Reader:
    """Reads the streams of shards, and hands each its new messages."""

    def __init__(self, sender: Sender, link: Link) -> None:
        self._sender = sender
        self._link = link
        self._shards: list[Shard] = []
        self._asleep = asyncio.Event()  # set when there is something to read for
        self._taking: list[Shard] = []  # those of the read under way
        self._reads = 0
        self._read_at = deque([0.0] * RUSH_READS, RUSH_READS)  # loop times of the last ones
        self._client: int | None = None

    def start(self) -> None:
        """Begins."""
        self._link.pipe.start()
        self._sender.spawn(self._run())

    async def close(self) -> None:
        """Ends the connection."""
        await self._link.pipe.close()

    def add(self, shard: Shard) -> None:
        """Reads for one shard more."""
        self._shards.append(shard)
        self.look()

    def remove(self, shard: Shard) -> None:
        """Reads for it no longer. What is on its way is still handed over."""
        self._shards.remove(shard)

    def look(self) -> None:
        """Some shard takes messages that did not when the read under way began."""
        self._asleep.set()
        if self._client is None or not self._taking:
            return
        if all(shard in self._taking for shard in self._shards):
            return
        number = self._reads

        def answered(reply: Any) -> None:
            if reply == 0 and number == self._reads and self._taking:
                self._sender.loop.call_later(UNBLOCK_AGAIN_S, self.look)

        self._sender.pipe.submit(resp.command("CLIENT", "UNBLOCK", self._client), answered)

    async def _run(self) -> None:
        while True:
            taking = [shard for shard in self._shards if shard.takes()]
            if not taking:
                self._asleep.clear()
                try:
                    async with asyncio.timeout(FULL_BLOCK_MS / 1000 if self._shards else None):
                        await self._asleep.wait()
                except TimeoutError:
                    pass
                continue
            try:
                for stream, entries in await self._read(taking):
                    for shard in taking:
                        if shard.stream == stream:
                            shard.received(entries)
                self._sender.pump()
                now = self._sender.loop.time()
                rush = now - self._read_at[0] < RUSH_S
                self._read_at.append(now)
                # Requests go out before Redis is asked again.
                await asyncio.sleep(PAUSE_S if rush else 0)
            except (LinkLost, TimeoutError):
                self._client = None
                self._link.pipe.drop()
                await self._link.usable(ANSWER_S)
            except hiredis.ReplyError as error:
                log.error("the federation outbox cannot be read: %s", error)
                await asyncio.sleep(REFUSED_S)
            except Exception:
                # All shards depend on this loop: it goes on, whatever one message did to it.
                log.exception("reading the federation outbox")
                await asyncio.sleep(REFUSED_S)

    async def _read(self, taking: list[Shard]) -> list[Any]:
        pipe = self._link.pipe
        if self._client is None:
            self._client = await pipe.call("CLIENT", "ID")
        everybody = len(taking) == len(self._shards)
        self._taking = taking
        self._reads += 1
        try:
            async with asyncio.timeout(BLOCK_MS / 1000 + ANSWER_S):
                reply = await pipe.call(
                    *("XREAD", "COUNT", min(shard.page() for shard in taking)),
                    *("BLOCK", BLOCK_MS if everybody else FULL_BLOCK_MS, "STREAMS"),
                    *(shard.stream for shard in taking),
                    *(shard.read_up_to for shard in taking),
                )
        finally:
            self._taking = []
        return reply or []

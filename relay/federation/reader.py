"""One blocking read for all shards that a process drains.

Redis answers it as soon as a worker commits a message for another relay. With one read for all
shards a commit that touches several of them takes one reply, and messages that arrive together are
sent together. When commits follow each other so fast that reads become a noticeable cost, the
reader pauses to collect a few.
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
"""Milliseconds after which Redis answers a read that finds nothing."""
FULL_BLOCK_MS: Final = 100
"""The same while some shard takes no messages: it is asked again afterwards."""
RUSH_READS: Final = 8
RUSH_S: Final = 0.004
"""Seconds within which `RUSH_READS` reads mean that commits are small and many; the reader then
pauses so that several go into one read."""
PAUSE_S: Final = 0.001
ANSWER_S: Final = 5.0
"""Seconds a reply may be late before its connection is given up."""
REFUSED_S: Final = 1.0
"""Seconds until the next attempt after Redis refused the read, for example while it is loading."""
UNBLOCK_AGAIN_S: Final = 0.005
"""Seconds until the next attempt to unblock a read that had not begun."""


class Reader:
    """Reads the streams of shards, and passes each its new messages."""

    def __init__(self, sender: Sender, link: Link) -> None:
        self._sender = sender
        self._link = link
        self._shards: list[Shard] = []
        self._asleep = asyncio.Event()  # set when a shard may take messages
        self._taking: list[Shard] = []  # those of the read in flight
        self._reads = 0
        self._read_at = deque([0.0] * RUSH_READS, RUSH_READS)  # loop times of the last reads
        self._client: int | None = None

    def start(self) -> None:
        """Start reading."""
        self._link.pipe.start()
        self._sender.spawn(self._run())

    async def close(self) -> None:
        """Close the connection."""
        await self._link.pipe.close()

    def add(self, shard: Shard) -> None:
        """Start to read for a shard."""
        self._shards.append(shard)
        self.look()

    def remove(self, shard: Shard) -> None:
        """Stop reading for a shard. Messages already in flight are still passed to it."""
        self._shards.remove(shard)

    def look(self) -> None:
        """Unblock the read in flight if some shard takes messages that did not when it began."""
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
                # Requests are sent before Redis is asked again.
                await asyncio.sleep(PAUSE_S if rush else 0)
            except (LinkLost, TimeoutError):
                self._client = None
                self._link.pipe.drop()
                await self._link.usable(ANSWER_S)
            except hiredis.ReplyError as error:
                log.error("the federation outbox cannot be read: %s", error)
                await asyncio.sleep(REFUSED_S)
            except Exception:
                # All shards depend on this loop: it continues whatever one message causes.
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

"""Two sessions that exchange messages, which a fault elsewhere must not affect."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

from tests.support.relay_process import RelayProcess
from tests.support.rmb_client import RmbClient, session
from tests.support.world import fresh_twins

SLOWEST_S = 2.0  # longer than delays of a busy machine, shorter than a stall


class Bystanders:
    """A pair of sessions that send requests to and fro, and the seconds of each round."""

    def __init__(self, one: RmbClient, two: RmbClient) -> None:
        self.one = one
        self.two = two
        self.rounds_s: list[float] = []

    async def play(self) -> None:
        """Play rounds until cancelled."""
        number = 0
        while True:
            number += 1
            start = time.perf_counter()
            payload = b"bystander %d" % number
            await self.one.request(self.two.key, payload)
            assert (await self.two.receive()).plain == payload
            await self.two.request(self.one.key, payload)
            assert (await self.one.receive()).plain == payload
            self.rounds_s.append(time.perf_counter() - start)

    async def play_rounds(self, count: int) -> None:
        """Wait until `count` more rounds are complete."""
        wanted = len(self.rounds_s) + count
        async with asyncio.timeout(60):
            while len(self.rounds_s) < wanted:
                await asyncio.sleep(0.001)


@contextlib.asynccontextmanager
async def bystanders(relay: RelayProcess) -> AsyncIterator[Bystanders]:
    """Play during the block; afterwards check that both sessions work and no round was slow."""
    one, two = fresh_twins(2)
    async with session(relay.url, one) as first, session(relay.url, two) as second:
        pair = Bystanders(first, second)
        playing = asyncio.create_task(pair.play())
        try:
            await pair.play_rounds(3)
            yield pair
            if playing.done():
                playing.result()
            await pair.play_rounds(3)
        finally:
            playing.cancel()
            await asyncio.gather(playing, return_exceptions=True)
        slowest = max(pair.rounds_s)
        assert slowest < SLOWEST_S, f"another session waited {slowest:.2f} s"

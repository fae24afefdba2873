"""A twin source whose answers a test controls, and a clock that a test sets."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from relay.twins.source import TwinRecord, TwinSourceError


def record(twin: int, version: int = 1, relays: tuple[str, ...] = ("here",)) -> TwinRecord:
    """Return a twin with synthetic keys."""
    return TwinRecord(twin, bytes([twin % 256]) * 32, b"\2" + bytes(32), relays, version)


class StillClock:
    """A clock that changes only when a test sets `now`, in seconds."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class ScriptedSource:
    """A twin source backed by a dictionary.

    Fetches fail while `away` is set, and wait while `open` is not set.
    """

    def __init__(self, *ids: int) -> None:
        self.twins = {twin: record(twin) for twin in ids}
        self.fetches: list[tuple[int, ...]] = []
        self.asked = asyncio.Event()
        self.open = asyncio.Event()
        self.open.set()
        self.away = False
        self.known: dict[int, TwinRecord] = {}

    async def fetch(self, ids: Sequence[int]) -> dict[int, TwinRecord]:
        self.fetches.append(tuple(ids))
        # Like a real source, it reads its answer before the caller receives it.
        answer = {twin: self.twins[twin] for twin in ids if twin in self.twins}
        self.asked.set()
        await self.open.wait()
        if self.away:
            raise TwinSourceError("away", self.known)
        return answer

    async def asked_times(self, count: int) -> None:
        """Wait until `count` fetches have begun."""
        async with asyncio.timeout(10):
            while len(self.fetches) < count:
                self.asked.clear()
                await self.asked.wait()

    async def highest_id(self) -> int:
        if self.away:
            raise TwinSourceError("away")
        return max(self.twins, default=0)

    async def close(self) -> None:
        """Do nothing: the source holds no resources."""

"""What a peer takes from its memory while nobody can be asked for twins."""

from __future__ import annotations

import pytest

from peer.errors import TwinsAwayError
from peer.twins import FRESH_S, UNKNOWN_S, Twin, TwinCache

TWIN = Twin(7, bytes(32), None, ("relay.example",))


class Source:
    """Knows one twin, until it is away."""

    away = False

    async def by_id(self, twin_id: int) -> Twin | None:
        if self.away:
            raise TwinsAwayError("nobody is there")
        return TWIN if twin_id == TWIN.id else None

    async def by_account(self, account: bytes) -> Twin | None:
        raise NotImplementedError

    async def aclose(self) -> None:
        pass


async def test_a_twin_that_was_not_there_may_be_there_now() -> None:
    """Its messages wait for the source; they are not refused as those of nobody."""
    now = 0.0
    source = Source()
    cache = TwinCache(source, clock=lambda: now)
    assert await cache.get(8) is None
    assert await cache.get(7) == TWIN
    source.away = True
    assert await cache.get(8) is None  # asked a moment ago
    now = UNKNOWN_S + 1
    with pytest.raises(TwinsAwayError):
        await cache.get(8)
    now = FRESH_S + 1
    assert await cache.get(7) == TWIN  # old, and better than nothing
    await cache.aclose()

"""Look-up of the twins to which one entry is addressed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from peer.twins import Twin, TwinCache, TwinsAwayError

log = logging.getLogger(__name__)

LOOK_UP_PAUSE_S: Final = 1.0
"""Seconds before twins are looked up again after their source was unavailable."""


async def look_up(twins: TwinCache, twin_ids: Sequence[int]) -> dict[int, Twin | None]:
    """Look up twins concurrently; omit failed look-ups, and pause if all failed."""
    found: dict[int, Twin | None] = {}
    away: TwinsAwayError | None = None

    async def ask(twin_id: int) -> None:
        nonlocal away
        try:
            found[twin_id] = await twins.get(twin_id)
        except TwinsAwayError as error:
            away = error

    await asyncio.gather(*map(ask, twin_ids))
    if away is not None:
        log.warning("twins cannot be looked up: %s", away)
    if not found:
        await asyncio.sleep(LOOK_UP_PAUSE_S)
    return found

"""Looking up the twins that one entry is for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from peer.twins import Twin, TwinCache, TwinsAwayError

log = logging.getLogger(__name__)

LOOK_UP_PAUSE_S: Final = 1.0
"""Before twins are asked for again when their source is away."""


async def look_up(twins: TwinCache, twin_ids: Sequence[int]) -> dict[int, Twin | None]:
    """Looks twins up, all at once; those that can't be now are left out, after a pause."""
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

"""Look-ups of twins that somebody names who has proven nothing yet: at a sign-in, or for a message
of another relay whose signature is still to be checked.

    memory and the shared cache   -> free: a gateway host signs thousands of twins in at once
    the registry of this relay    -> free: an answer takes less than the check of a signature
    a node of the chain           -> bounded for each address, and under way at once

Unknown twins are cheap to name, and a node is asked about each of them.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, Protocol

from proto.limits.bucket import TokenBuckets
from relay.twins.batches import Flight
from relay.twins.cache import MISSING, Missing, TwinLookupError
from relay.twins.source import TwinRecord

UNDER_WAY: Final = 1024
"""Look-ups that reach a chain node at once, in a worker."""
BURST_S: Final = 5
"""An address may use so many seconds of its rate at once: its clients come back together."""


class PlaceLimitError(TwinLookupError):
    """An address has had too many twins looked up on the chain."""


class Twins(Protocol):
    """The twin cache, as far as it is needed here."""

    async def look_near(self, twin: int) -> TwinRecord | Missing | None: ...

    async def look_up(self, twin: int) -> TwinRecord | None: ...

    def flight(self, twin: int) -> Flight | None: ...


class LookUps:
    """The look-ups of one worker, for twins that memory does not know."""

    def __init__(self, twins: Twins, *, on_chain: bool, per_ip_per_s: int) -> None:
        """
        Args:
            twins: the cache.
            on_chain: whether it ends at nodes of the chain.
            per_ip_per_s: how many may reach a node for each address and second; 0 is any.
        """
        self._twins = twins
        self._on_chain = on_chain
        self._under_way = 0
        self._places: TokenBuckets[str] | None = None
        if per_ip_per_s:
            self._places = TokenBuckets(per_ip_per_s, per_ip_per_s * BURST_S)

    def flight(self, twin: int) -> Flight | None:
        """Begin a look-up of a twin that memory does not know; None where it takes `look_up`.

        Raises:
            TwinLookupError: too many look-ups wait already.
        """
        return None if self._on_chain else self._twins.flight(twin)

    async def look_up(self, twin: int, place: str) -> TwinRecord | None:
        """The twin; None when there is no such twin.

        Args:
            twin: its id.
            place: what the limits of the address are counted under.

        Raises:
            PlaceLimitError: the address has had too many looked up.
            TwinLookupError: the source is away, or too many look-ups wait already.
        """
        if not self._on_chain:
            return await self._twins.look_up(twin)
        known = await self._twins.look_near(twin)
        if known is not MISSING:
            return known
        if self._under_way >= UNDER_WAY:
            raise TwinLookupError(f"{self._under_way} twin look-ups wait for the chain already")
        now = asyncio.get_running_loop().time()
        if self._places is not None and not self._places.take(place, now):
            raise PlaceLimitError(f"too many twin look-ups for {place}")
        self._under_way += 1
        try:
            return await self._twins.look_up(twin)
        finally:
            self._under_way -= 1


def open_look_ups(config: Any, twins: Twins) -> LookUps:
    """The look-ups as the configuration bounds them."""
    return LookUps(
        twins,
        on_chain=config.twins.source == "tfchain",
        per_ip_per_s=config.substrate.look_ups_per_ip_per_s,
    )

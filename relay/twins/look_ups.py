"""Look-ups of twins for clients that are not verified yet: at a sign-in, or for a message of a
partner relay whose signature is still to be checked.

    memory and the shared cache   -> free: a gateway host signs thousands of twins in at once
    the registry of this relay    -> free: an answer takes less time than checking a signature
    a node of the chain           -> bounded for each address, and in the number at once

Naming unknown twins is cheap, and each of them costs a query to a node.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, Protocol

from proto.limits.bucket import TokenBuckets
from relay.twins.batches import Flight
from relay.twins.cache import MISSING, Missing, TwinLookupError
from relay.twins.source import TwinRecord

UNDER_WAY: Final = 1024
"""Look-ups of one worker that query a chain node at once."""
BURST_S: Final = 5
"""Seconds of its rate that an address may use at once, because its clients reconnect together."""


class PlaceLimitError(TwinLookupError):
    """An address has caused too many look-ups on the chain."""


class Twins(Protocol):
    """The part of the twin cache that is used here."""

    async def look_near(self, twin: int) -> TwinRecord | Missing | None: ...

    async def look_up(self, twin: int) -> TwinRecord | None: ...

    def flight(self, twin: int) -> Flight | None: ...


class LookUps:
    """The look-ups of one worker, for twins that memory does not know."""

    def __init__(self, twins: Twins, *, on_chain: bool, per_ip_per_s: int) -> None:
        """Initialise the look-ups.

        Args:
            twins: twin cache.
            on_chain: whether the source of the cache is the chain.
            per_ip_per_s: look-ups that may reach a node for each address and second; 0 for no
                limit.
        """
        self._twins = twins
        self._on_chain = on_chain
        self._under_way = 0
        self._places: TokenBuckets[str] | None = None
        if per_ip_per_s:
            self._places = TokenBuckets(per_ip_per_s, per_ip_per_s * BURST_S)

    def flight(self, twin: int) -> Flight | None:
        """Begin a look-up of a twin that memory does not know; None if `look_up` must be used.

        Raises:
            TwinLookupError: too many look-ups wait already.
        """
        return None if self._on_chain else self._twins.flight(twin)

    async def look_up(self, twin: int, place: str) -> TwinRecord | None:
        """Return a twin; None if there is no such twin.

        Args:
            twin: id of the twin.
            place: key under which the limit of the address is counted.

        Raises:
            PlaceLimitError: the address has caused too many look-ups.
            TwinLookupError: the source is unavailable, or too many look-ups wait already.
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
    """Create the look-ups with the limits of the configuration."""
    return LookUps(
        twins,
        on_chain=config.twins.source == "tfchain",
        per_ip_per_s=config.substrate.look_ups_per_ip_per_s,
    )

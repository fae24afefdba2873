"""The sessions of a peer at its relays, one to four of them.

All of them are read; a message goes out through one, the one that worked last. When that does not
take it within 500 ms the next one has its turn, and after all of them there is a second of rest,
until the message expires.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Final

from peer.errors import SendExpiredError
from peer.link import BACKOFF, Link
from proto.limits.backoff import Backoff

MAX_RELAYS: Final = 4
"""As many as the reference gateway takes."""

TRY_S: Final = 0.5
"""How long one relay is waited for."""

REST_S: Final = 1.0
"""After all of them were tried."""


class Links:
    """One link to each relay.

    Args:
        urls: of the relays, the preferred one first.
        token: makes a token; called for each attempt to connect.
        on_message: called with each binary message of any of them.
        on_change: called with a link after it was connected and after it was lost, and when it
            takes messages again after it was full.
        backoff: the waits between attempts to connect.
        clock: unix seconds.

    Attributes:
        links: in the order of `urls`.

    Raises:
        ValueError: no URL, too many, one twice, or one that is none.
    """

    def __init__(
        self,
        urls: Sequence[str],
        token: Callable[[], str],
        on_message: Callable[[bytes], None],
        on_change: Callable[[Link], None] | None = None,
        *,
        backoff: Backoff = BACKOFF,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if not 1 <= len(urls) <= MAX_RELAYS:
            raise ValueError(f"relay: give 1 to {MAX_RELAYS} of them, not {len(urls)}")
        if len(set(urls)) < len(urls):
            raise ValueError("relay: one is given twice")
        self.links: tuple[Link, ...] = tuple(
            Link(url, token, on_message, on_change, backoff=backoff) for url in urls
        )
        self._clock = clock
        self._order = list(self.links)  # the one that worked last is the first

    def start(self) -> None:
        """Connect to all of them."""
        for link in self.links:
            link.start()

    async def aclose(self) -> None:
        """Sign out everywhere."""
        await asyncio.gather(*(link.aclose() for link in self.links))

    @property
    def connected(self) -> bool:
        """Whether there is any session at the moment."""
        return any(link.connected for link in self.links)

    def pause(self) -> None:
        """Read nothing more for a while: the relays keep what comes."""
        for link in self.links:
            link.pause()

    def resume(self) -> None:
        """Read again."""
        for link in self.links:
            link.resume()

    def try_send(self, data: bytes) -> Link | None:
        """Send through the link that worked last; returns it, or None when it can't now.

        Another one is taken at once when that one is not connected, but not when it is only busy:
        messages to one twin should take one way.
        """
        first = self._order[0]
        if first.try_send(data):
            return first
        if first.connected:
            return None
        for link in self._order[1:]:
            if link.try_send(data):
                self._prefer(link)
                return link
        return None

    async def send(self, data: bytes, deadline: float) -> Link:
        """Send as soon as a relay takes it; returns the link that did.

        Args:
            data: the message.
            deadline: unix seconds, when it expires.

        Raises:
            SendExpiredError: it expired before.
        """
        link = self.try_send(data)
        while link is None:
            link = await self._round(data, deadline)
        return link

    async def connected_within(self, timeout_s: float) -> bool:
        """Wait for the first session, for so long at most; says whether there is one."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not self.connected:
                    waits = [asyncio.create_task(each.writable(timeout_s)) for each in self.links]
                    try:
                        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                    finally:
                        for wait in waits:
                            wait.cancel()
        return self.connected

    async def _round(self, data: bytes, deadline: float) -> Link | None:
        """Wait for each in turn, then rest for a moment."""
        for link in tuple(self._order):
            left_s = self._left_s(deadline)
            if await link.writable(min(TRY_S, left_s)) and link.try_send(data):
                self._prefer(link)
                return link
        rest_s = min(REST_S, self._left_s(deadline))
        # One that connects meanwhile need not wait for the end of the rest.
        await self.connected_within(rest_s) if not self.connected else await asyncio.sleep(rest_s)
        return None

    def _left_s(self, deadline: float) -> float:
        left_s = deadline - self._clock()
        if left_s <= 0:
            why = "; ".join(f"{each.url}: {each.last_error or 'busy'}" for each in self.links)
            raise SendExpiredError(f"no relay took the message before it expired: {why}")
        return left_s

    def _prefer(self, link: Link) -> None:
        self._order.remove(link)
        self._order.insert(0, link)

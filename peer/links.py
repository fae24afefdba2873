"""The sessions of a peer at its relays, one to four of them.

All of them are read; a message goes out through one, the one that worked last. When that is gone,
or takes nothing for 500 ms, the next one has its turn. What none takes is kept and offered again
by `peer.unconfirmed`, until it expires.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable, Collection, Sequence
from typing import Final

from chain.urls import shown
from peer.link import BACKOFF, Link
from peer.relay_names import distinct
from proto.limits.backoff import Backoff

MakeLink = Callable[
    [str, Callable[[], str], Callable[[bytes], None], Callable[[Link], None] | None], Link
]
"""Makes a link, given the URL and what `Link` needs beside it."""

MAX_RELAYS: Final = 4
"""As many as the reference gateway takes."""

TRY_S: Final = 0.5
"""How long a relay that is connected may take nothing before the next one has its turn."""


class Links:
    """One link to each relay.

    Args:
        urls: of the relays, the preferred one first.
        token: makes a token; called for each attempt to connect.
        on_message: called with each binary message of any of them.
        on_change: called with a link after it was connected and after it was lost, and when it
            takes messages again after it was full.
        backoff: the waits between attempts to connect.
        make_link: makes each of them; a websocket of its own unless given.

    Attributes:
        links: in the order of `urls`.

    Raises:
        ValueError: no URL, too many, a relay twice, or an invalid URL.
    """

    def __init__(
        self,
        urls: Sequence[str],
        token: Callable[[], str],
        on_message: Callable[[bytes], None],
        on_change: Callable[[Link], None] | None = None,
        *,
        backoff: Backoff = BACKOFF,
        make_link: MakeLink | None = None,
    ) -> None:
        make_link = make_link or functools.partial(Link, backoff=backoff)
        if not 1 <= len(urls) <= MAX_RELAYS:
            raise ValueError(f"relay: give 1 to {MAX_RELAYS} of them, not {len(urls)}")
        self.links: tuple[Link, ...] = tuple(
            make_link(url, token, on_message, on_change) for url in urls
        )
        if len(distinct(urls)) < len(urls):
            given = ", ".join(map(shown, urls))
            raise ValueError(f"relay: {given}: two of them are one relay; give each relay once")
        self._order = list(self.links)  # the one that worked last is the first

    def start(self) -> None:
        """Connect to all of them."""
        for link in self.links:
            link.start()

    async def aclose(self) -> None:
        """Sign out everywhere."""
        try:
            await asyncio.gather(*(link.aclose() for link in self.links))
        finally:  # those, too, whose end was cancelled before it began
            for link in self.links:
                link.stop()

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

    def try_send(self, data: bytes, without: Collection[Link] = ()) -> Link | None:
        """Send through the link that worked last; returns it, or None when none can now.

        One that is busy for a moment is not passed over: messages to one twin should take one way.

        Args:
            data: the message.
            without: links that are not to be used for this one.
        """
        first = self._order[0]
        if not without and first.try_send(data):
            return first
        for link in self._order:
            if link in without:
                continue
            if link.try_send(data):
                if not without:
                    self._order.remove(link)
                    self._order.insert(0, link)
                return link
            if link.connected and link.busy_s < TRY_S:
                return None
        return None

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

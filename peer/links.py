"""The sessions of a peer at its relays, one to four of them.

All relays are read; a message is sent through one, the relay that worked last. When that relay is
disconnected, or accepts nothing for 500 ms, the next one is used. `peer.unconfirmed` keeps messages
that no relay accepts and offers them again until they expire.
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
"""Factory of links, called with the URL and the other positional arguments of `Link`."""

MAX_RELAYS: Final = 4
"""Maximum number of relays, the same as in the reference gateway."""

TRY_S: Final = 0.5
"""Seconds for which a connected relay may accept nothing before the next one is used."""


class Links:
    """One link to each relay.

    Args:
        urls: URLs of the relays, the preferred one first.
        token: issues a token; called for each attempt to connect.
        on_message: called with each binary message of any relay.
        on_change: called with a link after it was connected or lost, and when it accepts messages
            again after it was full.
        backoff: back-off between attempts to connect.
        make_link: factory of the links; by default each has a websocket of its own.

    Attributes:
        links: the links, in the order of `urls`.

    Raises:
        ValueError: no URL is given, there are too many, two are of one relay, or one is invalid.
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
        """Connect to all relays."""
        for link in self.links:
            link.start()

    async def aclose(self) -> None:
        """Sign out at all relays."""
        try:
            await asyncio.gather(*(link.aclose() for link in self.links))
        finally:  # also links whose `aclose` was cancelled before it began
            for link in self.links:
                link.stop()

    @property
    def connected(self) -> bool:
        """Whether any session exists at the moment."""
        return any(link.connected for link in self.links)

    def pause(self) -> None:
        """Stop reading until `resume` is called: the relays keep further messages."""
        for link in self.links:
            link.pause()

    def resume(self) -> None:
        """Continue to read."""
        for link in self.links:
            link.resume()

    def try_send(self, data: bytes, without: Collection[Link] = ()) -> Link | None:
        """Send through the link that worked last; return the link, or None if none accepts it now.

        A link that is busy for a moment is not passed over: messages to one twin should take one
        route.

        Args:
            data: the message.
            without: links that are not to be used for this message.
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
        """Wait up to `timeout_s` seconds for the first session; return whether there is one."""
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

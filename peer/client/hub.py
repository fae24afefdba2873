"""Clients of thousands of twins in one process: `async with Hub(...)`.

All clients of a hub share one connection to each relay, and one source and cache of twins. In all
other respects each is a `Client`.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import math
import os
import ssl
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Literal, Self

from peer.client.bounds import TIMEOUT_S
from peer.client.client import Client, open_twins
from peer.client.serving import ClientHandler
from peer.errors import ConnectError
from peer.hub import Carrier, StreamLink
from peer.identity import Identity
from peer.link import Link, check_url
from peer.links import MakeLink
from peer.modules.api import Module
from peer.twins import TwinCache, TwinSource
from proto.rmb.address import Address

logger = logging.getLogger(__name__)

CONNECT_TIMEOUT_S: Final = 60.0
"""Seconds that a client may wait for its turn to sign in: a relay accepts some hundred a second."""

MAX_TWINS: Final = 100_000
"""Maximum number of twins in memory: those of the clients and those they talk to."""

NEW_SID: Final = object()


class Hub:
    """Clients of many twins over one connection to each relay, for the duration of the block.

        async with Hub("wss://relay.example", "https://relay.example") as hub:
            clients = await asyncio.gather(*(hub.open(each) for each in secrets))

    Args:
        relays: a websocket URL, or one to four of them. A URL without a path means the relay's path
            for streams, `/streams`.
        twins: as for `Client`.
        substrate: as for `Client`.
        tls: TLS context for wss URLs; verifies certificates and host names by default.

    Raises:
        ValueError: an argument is invalid.
    """

    def __init__(
        self,
        relays: str | Sequence[str],
        twins: str | os.PathLike[str] | TwinSource | None = None,
        *,
        substrate: Sequence[str] = (),
        tls: ssl.SSLContext | None = None,
    ) -> None:
        if twins is None and not substrate:
            raise ValueError("twins: give a file, the URL of a relay's site, or substrate=[...]")
        urls = [relays] if isinstance(relays, str) else relays
        self._relays = [check_url(each) for each in urls]
        self._twins = twins
        self._substrate = substrate
        self._tls = tls
        self._cache: TwinCache | None = None
        self._carriers: dict[str, Carrier] = {}
        self._clients: dict[_HubClient, None] = {}
        self._opening: set[asyncio.Task[_HubClient]] = set()

    async def __aenter__(self) -> Self:
        """Open the source of twins; relays are connected when the first client needs them.

        Raises:
            TwinsAwayError: the source of twins does not exist.
        """
        if self._cache is not None:
            raise RuntimeError("the hub is open already")
        source = open_twins(self._twins, self._substrate)
        self._cache = TwinCache(source, capacity=MAX_TWINS)
        self._carriers = {url: Carrier(url, tls=self._tls) for url in self._relays}
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Sign out all clients; without an error, sent messages get some time to reach a relay."""
        cache, self._cache = self._cache, None
        if cache is None:
            return
        for opening in self._opening:
            opening.cancel()
        await asyncio.gather(*self._opening, return_exceptions=True)
        try:
            clients = [each.__aexit__(kind, error, trace) for each in self._clients]
            for found in await asyncio.gather(*clients, return_exceptions=True):
                if isinstance(found, Exception):
                    logger.error("a client did not end in good order", exc_info=found)
        finally:
            await asyncio.gather(*(each.aclose() for each in self._carriers.values()))
            await cache.aclose()

    def client(
        self,
        secret: str | Identity,
        *,
        sid: str | object | None = NEW_SID,
        key_type: Literal["sr25519", "ed25519"] = "sr25519",
        handlers: Mapping[str, ClientHandler] | None = None,
        modules: Sequence[Module] = (),
        timeout: float = TIMEOUT_S,
        connect_timeout: float = CONNECT_TIMEOUT_S,
    ) -> Client:
        """Return a client for a block of its own: `async with hub.client(secret) as client`.

        Args:
            secret: as for `Client`, and so are the others.
            connect_timeout: seconds to wait for the first relay, including the time until the other
                clients have signed in.

        Raises:
            ValueError: an argument is invalid.
            SecretError: the secret is invalid; the text does not repeat it.
        """
        options: dict[str, Any] = {} if sid is NEW_SID else {"sid": sid}
        return _HubClient(
            self,
            secret,
            self._relays,
            self._open.source,
            key_type=key_type,
            handlers=handlers,
            modules=modules,
            timeout=timeout,
            connect_timeout=connect_timeout,
            **options,
        )

    async def open(self, secret: str | Identity, **options: Any) -> Client:
        """Return a client that has signed in; it is closed with the hub, or by `aclose`.

        Args:
            secret: as for `Client`.
            options: as for `client`.

        Raises:
            ConnectError: the key belongs to no twin, or no relay accepted the connection.
            TwinsAwayError: twins cannot be looked up.
            ValueError, SecretError: as for `client`.
        """
        client = self.client(secret, **options)
        return await client.__aenter__()

    @property
    def connected(self) -> bool:
        """Whether any relay is connected at the moment."""
        return any(each.session is not None for each in self._carriers.values())

    @property
    def clients(self) -> tuple[Client, ...]:
        """The open clients."""
        return tuple(self._clients)

    def __repr__(self) -> str:
        return f"<Hub of {len(self._clients)} clients at {', '.join(self._relays)}>"

    @property
    def _open(self) -> TwinCache:
        if self._cache is None:
            raise RuntimeError("the hub is not open: use it inside `async with Hub(...)`")
        return self._cache

    # For the clients.

    async def opened(self, opening: asyncio.Task[_HubClient]) -> _HubClient:
        """Wait until a client is open; the end of the hub cancels it.

        Raises:
            ConnectError: the hub was closed before, or as raised by the task.
        """
        self._opening.add(opening)
        try:
            client = await opening
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._cache is None and task is not None and not task.cancelling():
                raise ConnectError("the hub was closed") from None
            raise
        finally:
            self._opening.discard(opening)
        self._clients[client] = None
        return client

    @property
    def cache(self) -> TwinCache:
        """The cache of twins."""
        return self._open

    def closed(self, client: _HubClient) -> None:
        """Remove a closed client."""
        self._clients.pop(client, None)

    def make_link(self, own: Address) -> MakeLink:
        """Return the factory of the links of a session."""
        return functools.partial(self._link, str(own))

    def _link(self, name: str, url: str, *args: Any) -> Link:
        return StreamLink(self._carriers[url], name, *args)


class _HubClient(Client):
    def __init__(self, hub: Hub, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._hub = hub
        self._quiet_s = math.inf  # clients wait for each other

    async def __aenter__(self) -> Self:
        opening = asyncio.get_running_loop().create_task(super().__aenter__())
        await self._hub.opened(opening)
        return self

    def _open_cache(self) -> TwinCache:
        return self._hub.cache

    async def _close_cache(self, cache: TwinCache) -> None:
        self._hub.closed(self)

    def _make_link(self, own: Address) -> MakeLink:
        return self._hub.make_link(own)

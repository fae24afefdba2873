"""An SBD client with end-to-end encryption; see `proto.sbd.e2e`."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from typing import Any, Self

from peer.sbd.client import SbdClient
from proto.sbd.bounds import MAX_PEERS, PEER_IDLE_NS
from proto.sbd.e2e import EndToEnd


class E2eClient:
    """An SBD client that encrypts.

    Attributes:
        key: the client's public key, 32 bytes.
    """

    def __init__(
        self,
        url: str,
        seed: bytes | None = None,
        *,
        listener: bool = False,
        max_peers: int = MAX_PEERS,
        idle_s: float = PEER_IDLE_NS / 1e9,
        **options: Any,
    ) -> None:
        """
        Args:
            url: see `SbdClient`, also for the other arguments.
            listener: whether peers may start a conversation; otherwise messages from keys to which
                nothing was sent are ignored.
            max_peers: maximum number of peers with streams at a time.
            idle_s: seconds without a message in either direction after which a peer is forgotten.
        """
        self._client = SbdClient(url, seed, **options)
        self.key = self._client.key
        self._streams = EndToEnd(
            self._client.secret,
            os.urandom,
            listener=listener,
            max_peers=max_peers,
            idle_ns=int(idle_s * 1e9),
        )
        self._sending = asyncio.Lock()  # messages must be sent in the order of encryption

    async def __aenter__(self) -> Self:
        await self._client.open()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def send(self, key: bytes, message: bytes) -> None:
        """Encrypt a message, and send it to a key.

        Raises:
            MessageSizeError: the message is longer than 19,950 bytes.
            PeerError: it is not possible to encrypt for this key, or too many peers have streams.
            ClosedError: the connection has ended.
        """
        async with self._sending:
            self._streams.send(key, message, time.monotonic_ns())
            await self._flush()

    async def drain(self) -> None:
        """Wait until all messages that waited for the rate limit have been sent.

        Raises:
            ClosedError: the connection has ended.
        """
        await self._client.drain()

    async def receive(self) -> tuple[bytes, bytes]:
        """Return the next message that could be decrypted: the key of the peer, and the message.

        Raises:
            ClosedError: the connection has ended.
        """
        while True:
            if (event := self._streams.next_event()) is not None:
                return event.key, event.message
            key, payload = await self._client.receive()
            self._streams.receive_packet(key, payload, time.monotonic_ns())
            async with self._sending:
                await self._flush()

    async def __aiter__(self) -> AsyncIterator[tuple[bytes, bytes]]:
        async for key, payload in self._client:
            self._streams.receive_packet(key, payload, time.monotonic_ns())
            async with self._sending:
                await self._flush()
            while (event := self._streams.next_event()) is not None:
                yield event.key, event.message

    def active_peers(self) -> list[bytes]:
        """Return the keys of the peers that have streams."""
        return self._streams.active_peers(time.monotonic_ns())

    def close_peer(self, key: bytes) -> None:
        """Forget a peer, without notifying it."""
        self._streams.close_peer(key)

    async def close(self) -> None:
        """Close the connection."""
        await self._client.close()

    async def _flush(self) -> None:
        for key, payload in self._streams.data_to_send():
            await self._client.send(key, payload)

"""The `nats-py` client of one connection, with two corrections on which the lattice depends."""

from __future__ import annotations

import asyncio
from typing import Any

import nats.errors
from nats.aio.client import Client


class OrderedClient(Client):
    """A client that never falls back to plain text, and sends pings in order with its messages."""

    needs_tls = False

    async def _send_ping(self, future: asyncio.Future[Any] | None = None) -> None:
        # The base class writes a ping at once, ahead of messages that its flusher has not written
        # yet: the answer to the ping would not show that the server has received them.
        if self._pending_data_size > 0 and self._transport is not None:
            pending, self._pending, self._pending_data_size = self._pending, [], 0
            self._transport.writelines(pending)
        await super()._send_ping(future)

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        if self.needs_tls and initial_connection and not info.get("tls_required"):
            raise nats.errors.Error("the server does not require TLS, and the options do")
        await super()._process_info(info, initial_connection)

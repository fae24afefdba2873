"""Serve connections that were accepted outside the event loop's own server."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any


class AcceptedConnections:
    """Passes accepted sockets to the event loop, with a task for each until its protocol has it."""

    def __init__(self, make_protocol: Callable[[], Any], tls: dict[str, Any]) -> None:
        """Prepare to serve connections.

        Args:
            make_protocol: Factory of the protocol of a connection.
            tls: TLS arguments, as for a server of the loop.
        """
        self._make_protocol = make_protocol
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()

    def serve(self, connection: socket.socket) -> None:
        """Serve a connection; close it if its TLS handshake fails."""
        connection.setblocking(False)
        task = self._loop.create_task(self._serve(connection))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, connection: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._make_protocol, connection, **self._tls)
        except OSError:  # the client has gone, or its TLS is wrong
            connection.close()

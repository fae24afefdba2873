"""Serve connections that were accepted beside the event loop's own server."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any


class AcceptedConnections:
    """Hands accepted sockets to the event loop, a task for each until its protocol has it."""

    def __init__(self, make_protocol: Callable[[], Any], tls: dict[str, Any]) -> None:
        """
        Args:
            make_protocol: makes the protocol of a connection.
            tls: what a server of the loop is given for it.
        """
        self._make_protocol = make_protocol
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()

    def serve(self, connection: socket.socket) -> None:
        """Serve a connection; it is closed if its TLS handshake fails."""
        connection.setblocking(False)
        task = self._loop.create_task(self._serve(connection))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, connection: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._make_protocol, connection, **self._tls)
        except OSError:  # the client has gone, or its TLS is wrong
            connection.close()

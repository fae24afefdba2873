"""Answers on the public listener while a relay starts: 503 at once, whatever is asked.

The listener is open before Redis, the database and the workers are ready. Without an answer a
client would wait in its backlog: a relay that posts a message gives up after 3 s and posts it
again, and both would be read once there is a worker.

    async with answering(listeners, relay_config):
        ...  # until the workers accept
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from proto.federation.answers import InboundReason, refused

MOST_CLIENTS: Final = 1_000
"""At a time; more are cut."""
SILENT_S: Final = 5.0
"""A client that sends nothing for so long is cut."""
LINGER_S: Final = 1.0
"""How long the rest of a request is read: a connection with unread bytes loses its answer."""

logger = logging.getLogger("relay.supervisor")


def _answer() -> bytes:
    answer = refused(InboundReason.STARTING)
    lines = (
        f"HTTP/1.1 {answer.status} Service Unavailable",
        "content-type: text/plain; charset=utf-8",
        f"content-length: {len(answer.text)}",
        f"retry-after: {answer.retry_after_s}",
        "connection: close",
    )
    return "\r\n".join([*lines, "", answer.text]).encode()


class _Client(asyncio.Protocol):
    answer: Final = _answer()

    def __init__(self, clients: set[_Client]) -> None:
        self._clients = clients
        self._answered = False
        self._end: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if len(self._clients) >= MOST_CLIENTS:
            transport.abort()
            return
        self._clients.add(self)
        self._end_in(SILENT_S)

    def data_received(self, data: bytes) -> None:
        if self._answered:
            return
        self._answered = True
        self._transport.write(self.answer)
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self._end_in(LINGER_S)

    def connection_lost(self, exc: Exception | None) -> None:
        self._clients.discard(self)
        if self._end is not None:
            self._end.cancel()

    def _end_in(self, seconds: float) -> None:
        if self._end is not None:
            self._end.cancel()
        self._end = asyncio.get_running_loop().call_later(seconds, self._transport.close)


@contextlib.asynccontextmanager
async def answering(listeners: Sequence[socket.socket], relay: Any) -> AsyncIterator[None]:
    """Answer on these listeners for the length of the block; they stay open after it.

    Args:
        listeners: of the public listener.
        relay: `rmbsite.config.RelayConfig`.
    """
    loop = asyncio.get_running_loop()
    clients: set[_Client] = set()
    async with contextlib.AsyncExitStack() as servers:
        tls: dict[str, Any] = {}
        if relay.tls_cert:
            try:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.load_cert_chain(relay.tls_cert, relay.tls_key or None)
            except OSError as error:
                logger.debug("nobody is answered during the start: %s", error)
                yield  # the workers say what is wrong with it
                return
            tls = {"ssl": context, "ssl_handshake_timeout": relay.handshake_timeout_s}
        for listener in listeners:
            server = await loop.create_server(
                lambda: _Client(clients), sock=listener.dup(), backlog=relay.backlog, **tls
            )
            servers.callback(server.close)
        yield

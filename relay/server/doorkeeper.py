"""Answers on the public listener while a relay starts: 503 at once, whatever the request.

The listener is open before Redis, the database and the workers are ready. Without an answer, a
client would wait in its backlog: a partner relay that posts a message gives up after 3 s and posts
it again, and a worker would later read both.

    doorkeeper = Doorkeeper(listeners, config.relay)
    ... start a worker, which writes to `doorkeeper.accepting_fd` before it accepts
    doorkeeper.leave()  # if none ever did
"""

from __future__ import annotations

import asyncio
import logging
import os
import select
import socket
import ssl
from collections.abc import Sequence
from typing import Any, Final

from proto.federation.answers import InboundReason, refused
from relay.server.accepted import AcceptedConnections
from relay.server.handshake import http_answer

MOST_CLIENTS: Final = 1_000
"""Maximum number of clients at a time; further ones are disconnected."""
SILENT_S: Final = 5.0
"""Seconds after which a client that sends nothing is disconnected."""
LINGER_S: Final = 1.0
"""Seconds for which the rest of a request is read: closing a connection with unread bytes would
destroy the answer."""

logger = logging.getLogger("relay.supervisor")


def _answer() -> bytes:
    answer = refused(InboundReason.STARTING)
    headers = [(b"retry-after", b"%d" % answer.retry_after_s)]
    return http_answer(answer.status, answer.text.encode(), headers)


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


class Doorkeeper:
    """Answers on listeners that workers share, until one of them reports that it accepts.

    Attributes:
        accepting_fd: Descriptor that a worker writes to before it accepts its first connection.
    """

    def __init__(self, listeners: Sequence[socket.socket], relay: Any) -> None:
        """Begin to answer.

        Args:
            listeners: Sockets of the public listener; they stay open.
            relay: `rmbsite.config.RelayConfig`.
        """
        self._listeners = list(listeners)
        self._clients: set[_Client] = set()
        self._accepted_fd, self.accepting_fd = os.pipe()
        self._loop = asyncio.get_running_loop()
        tls: dict[str, Any] = {}
        if relay.tls_cert:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            try:
                context.load_cert_chain(relay.tls_cert, relay.tls_key or None)
            except OSError as error:
                logger.debug("nobody is answered during the start: %s", error)
                self._listeners = []  # the workers report the error
            tls = {"ssl": context, "ssl_handshake_timeout": relay.handshake_timeout_s}
        self._serving = AcceptedConnections(lambda: _Client(self._clients), tls)
        for listener in self._listeners:
            listener.setblocking(False)
            self._loop.add_reader(listener.fileno(), self._accept, listener)
        self._loop.add_reader(self._accepted_fd, self.leave)

    def leave(self) -> None:
        """Stop accepting connections."""
        for listener in self._listeners:
            self._loop.remove_reader(listener.fileno())
        self._listeners.clear()
        if self._accepted_fd >= 0:
            self._loop.remove_reader(self._accepted_fd)
            os.close(self._accepted_fd)
            self._accepted_fd = -1

    def _accept(self, listener: socket.socket) -> None:
        # Checked before each connection: the loop may report the connection first.
        said = select.poll()
        said.register(self._accepted_fd, select.POLLIN)
        if said.poll(0):
            self.leave()
            return
        try:
            connection, _ = listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:  # no descriptors left: further clients wait for a worker
            logger.warning("nobody is answered during the start: %s", error)
            self.leave()
            return
        self._serving.serve(connection)

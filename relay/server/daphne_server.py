"""A relay worker under daphne: the same application on plain ASGI (`--server daphne`).

daphne supports neither sockets that are already open nor the lifespan protocol; this module adds
both. It cannot answer over HTTP before the upgrade either, so every refused sign-in gets a 403.
"""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Sequence
from typing import Any, Final

import uvicorn

# daphne installs its reactor on import, which must come before any other import of Twisted.
from daphne.server import Server  # isort: split

from OpenSSL import SSL
from twisted.internet import reactor as installed_reactor
from twisted.internet import ssl
from twisted.protocols.tls import TLSMemoryBIOFactory
from uvicorn.lifespan.on import LifespanOn

from relay.server.daphne_websocket import RelayWebSocketProtocol, ending

NO_TIMEOUT: Final = -1
START_FAILED: Final = 3

reactor: Any = installed_reactor


def serve(
    app: Any, config: Any, listeners: Sequence[socket.socket], on_ready: Callable[[], bool]
) -> int:
    """Serve until SIGTERM, then drain, and return the exit code of the process."""
    worker = _Worker(app, config.relay, listeners, on_ready)
    server = Server(
        ending(app),
        endpoints=["the listeners of the supervisor"],
        signal_handlers=False,
        ready_callable=worker.begin,
        websocket_timeout=NO_TIMEOUT,
        websocket_handshake_timeout=config.relay.handshake_timeout_s,
        websocket_connect_timeout=config.relay.handshake_timeout_s,
        websocket_max_message_size=config.relay.max_message_bytes,
        websocket_max_frame_size=config.relay.max_message_bytes,
        server_name="",
    )
    server.endpoints = []  # the argument is required, but `_Worker` opens them
    worker.server = server
    server.run()
    return worker.exit_code


class _Worker:
    """The application's startup before daphne accepts connections, and its shutdown afterwards."""

    server: Server

    def __init__(
        self,
        app: Any,
        relay: Any,
        listeners: Sequence[socket.socket],
        on_ready: Callable[[], bool],
    ) -> None:
        self.exit_code = 0
        self._relay = relay
        self._listeners = listeners
        self._on_ready = on_ready
        self._stop = asyncio.Event()
        lifespan_settings = uvicorn.Config(
            app, interface="asgi3", ws="none", lifespan="on", log_config=None
        )
        self._lifespan = LifespanOn(lifespan_settings)

    def begin(self) -> None:
        """Start; daphne calls this when its factories exist, just before the loop runs."""
        self.server.ws_factory.protocol = RelayWebSocketProtocol
        self.server.http_factory.timeOut = self._relay.handshake_timeout_s
        loop = asyncio.get_event_loop()
        loop.add_signal_handler(signal.SIGTERM, self._stop.set)
        self._task = loop.create_task(self._run())

    async def _run(self) -> None:
        await self._lifespan.startup()
        if self._lifespan.should_exit:
            self.exit_code = START_FAILED
            self.server.stop()
            return
        factory = self._factory()
        ports = [
            reactor.adoptStreamPort(listener.fileno(), listener.family, factory)
            for listener in self._listeners
        ]
        if self._on_ready():
            await self._stop.wait()
        for listener, port in zip(self._listeners, ports, strict=True):
            # Not stopListening(): it removes the file of a Unix socket, which is the supervisor's.
            port.stopReading()
            port.socket.close()
            listener.close()
        await self._lifespan.shutdown()
        self.server.stop()

    def _factory(self) -> Any:
        factory = self.server.http_factory
        if not self._relay.tls_cert:
            return factory
        context: Any = _ServerContext(self._relay.tls_cert, self._relay.tls_key)
        return TLSMemoryBIOFactory(context, False, factory)


class _ServerContext(ssl.ContextFactory):
    """TLS of the listener, with the complete certificate chain of the file."""

    def __init__(self, certificate: str, key: str) -> None:
        self._context = SSL.Context(SSL.TLS_SERVER_METHOD)
        self._context.set_min_proto_version(SSL.TLS1_2_VERSION)
        self._context.use_certificate_chain_file(certificate)
        self._context.use_privatekey_file(key)

    def getContext(self) -> SSL.Context:
        return self._context

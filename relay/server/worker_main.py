"""One server process: a relay worker (`--role worker`) or the operator site (`--role admin`).

The supervisor starts it with listening sockets that are already open. A worker runs the relay's
ASGI application under uvicorn with our protocol classes, or under daphne. SIGTERM drains it: it
stops accepting, lets the application close its sessions and flush (its lifespan shutdown), closes
the remaining connections, and ends.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import gc
import importlib
import importlib.util
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

import uvicorn
from django.conf import settings
from uvicorn.config import STARTUP_FAILURE

from relay.server.client_address import name_clients
from relay.server.collecting import GC_THRESHOLDS
from relay.server.crowd import Crowd
from relay.server.django_setup import set_up_django
from relay.server.frame_protocol import FrameProtocol
from relay.server.http_protocol import http_protocol
from relay.server.lifeline import tell_ready, watch_parent
from relay.server.limits import KEEP_ALIVE_S, ServerLimits
from relay.server.listen import OWN_LISTENERS

ORPHAN_GRACE_S: Final = 15.0
"""Seconds in addition to the drain time after which a process without a parent is ended, whatever
it does."""

CUT_GRACE_S: Final = 2
"""Seconds from the end of the drain to the cancellation of the remaining connections' tasks."""


MAX_CALL_BYTES: Final = 64 * 1024 + 16
"""Size of a message to the operator site's websockets: a piece of a call
(`relay.calls.endpoint`)."""

SITE_LIMITS: Final = ServerLimits(
    answer_timeout_s=60.0, max_request_line_bytes=16 * 1024, max_head_bytes=64 * 1024
)
"""Limits of the operator site's listener. Browsers send it the cookies of all sites on the same
host, and a user may page slowly through an export."""


class DrainingServer(uvicorn.Server):
    """uvicorn with a bound on TLS handshakes, whose application closes its sessions itself."""

    def __init__(
        self,
        config: uvicorn.Config,
        on_ready: Callable[[], bool],
        tls_handshake_timeout_s: float | None = None,
    ) -> None:
        """Create the server.

        Args:
            on_ready: Called when the server accepts; returns False if it has to stop already.
            tls_handshake_timeout_s: Seconds for a TLS handshake, for servers with TLS.
        """
        super().__init__(config)
        self._on_ready = on_ready
        self._tls_handshake_timeout_s = tls_handshake_timeout_s
        self._crowds: list[Crowd] = []

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        # Like uvicorn's own, but that lets a client stall its TLS handshake for a minute.
        await self.lifespan.startup()
        if self.lifespan.should_exit:
            sys.exit(STARTUP_FAILURE)
        config = self.config
        make_protocol: Callable[..., Any] = config.http_protocol_class
        protocol = functools.partial(
            make_protocol,
            config=config,
            server_state=self.server_state,
            app_state=self.lifespan.state,
        )
        tls: dict[str, Any] = {}
        if config.ssl is not None:
            tls = {"ssl": config.ssl, "ssl_handshake_timeout": self._tls_handshake_timeout_s}
        loop = asyncio.get_running_loop()
        self.servers = []
        for listener in sockets or []:
            crowd = Crowd(listener, protocol, tls)
            self._crowds.append(crowd)
            server = await loop.create_server(
                crowd.accepted, sock=listener, backlog=config.backlog, **tls
            )
            self.servers.append(server)
        self.started = True
        if not self._on_ready():  # a later SIGTERM sets it too
            self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        for listener in sockets or []:
            listener.close()
        for crowd in self._crowds:
            crowd.close()
        await self.lifespan.shutdown()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CUT_GRACE_S):
                await self._wait_tasks_to_complete()
        for task in self.server_state.tasks:
            task.cancel()
        for connection in list(self.server_state.connections):
            if isinstance(connection, FrameProtocol):  # which may have no task
                connection.abort()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one server process until SIGTERM or until the parent is gone."""
    options = _parse(arguments)
    own = {
        name: [socket.socket(fileno=fd) for fd in getattr(options, f"{name}_listen_fd")]
        for name in OWN_LISTENERS
    }
    listeners = [socket.socket(fileno=fd) for fd in options.listen_fd]
    listeners += [each for several in own.values() for each in several]
    # Used until the server handles SIGTERM itself, and again when it raises it after its drain.
    stop_asked = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop_asked.set())
    gc.set_threshold(*GC_THRESHOLDS)
    os.environ["RMB_ROLE"] = options.role  # which applications the settings install
    set_up_django()
    config = settings.RMB
    watch_parent(options.lifeline_fd, grace_s=config.relay.drain_s + ORPHAN_GRACE_S)

    def on_ready() -> bool:
        # Imports are never freed: the collector need not scan them again.
        gc.collect()
        gc.freeze()
        if options.accepting_fd is not None:
            tell_ready(options.accepting_fd)
        tell_ready(options.ready_fd)
        return not stop_asked.is_set()

    if options.role == "admin":
        standby = importlib.import_module("relay.alarms.standby").Standby()
        recorder = importlib.import_module("relay.history.recorder").Recorder()
        standby.start()
        recorder.start()
        DrainingServer(admin_server(), on_ready).run(listeners)
        recorder.stop()
        standby.stop()
        return 0
    limits = listener_limits(config)
    create_app = importlib.import_module("relay.sessions.app").create_app
    places = {name: list(map(_place, several)) for name, several in own.items()}
    relay_app = create_app(config, options.slot, limits.refused, places)
    app = name_clients(relay_app, config.relay.trusted_proxies)
    if config.relay.server == "daphne":
        # Importing it installs a Twisted reactor.
        from relay.server.daphne_server import serve

        return serve(app, config, listeners, on_ready)
    server = DrainingServer(
        relay_server(app, config, limits, relay_app), on_ready, config.relay.handshake_timeout_s
    )
    server.run(listeners)
    return 0


def listener_limits(config: Any) -> ServerLimits:
    """Return the limits of the public listener."""
    relay = config.relay
    return ServerLimits(
        handshake_timeout_s=relay.handshake_timeout_s,
        answer_timeout_s=relay.handshake_timeout_s,
        max_message_bytes=relay.max_message_bytes,
        partial_bytes=relay.partial_bytes,
    )


def relay_server(app: Any, config: Any, limits: ServerLimits, relay_app: Any) -> uvicorn.Config:
    """Return uvicorn's settings for a relay worker."""
    relay = config.relay
    tls: dict[str, Any] = {}
    if relay.tls_cert:
        tls = {"ssl_certfile": relay.tls_cert, "ssl_keyfile": relay.tls_key}
    return uvicorn.Config(
        app,
        interface="asgi3",
        http=http_protocol(
            limits,
            relay_app.take_post,
            relay_app.post_paths,
            relay_app.take_handshake,
            relay_app.own_places,
        ),
        ws=FrameProtocol,
        loop=_loop(),
        lifespan="on",
        backlog=relay.backlog,
        ws_max_size=relay.max_message_bytes,
        ws_ping_interval=None,
        ws_per_message_deflate=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        # Access lines would print the query string, which is the session token.
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        **tls,
    )


def admin_server() -> uvicorn.Config:
    """Return uvicorn's settings for the operator site."""
    return uvicorn.Config(
        "rmbsite.asgi:admin",
        interface="asgi3",
        http=http_protocol(SITE_LIMITS),
        # For the console's live figures, whose clients only listen, and for operators' calls.
        ws="websockets-sansio",
        ws_max_size=MAX_CALL_BYTES,
        ws_per_message_deflate=False,
        loop=_loop(),
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
    )


def _place(listener: socket.socket) -> int | str:
    """Return the port or path of a listener, as in the `server` entry of a scope."""
    name = listener.getsockname()
    return name if isinstance(name, str) else int(name[1])


def _loop() -> str:
    return "uvloop" if importlib.util.find_spec("uvloop") else "asyncio"


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--role", choices=("worker", "admin"), required=True)
    parser.add_argument("--slot", type=int, default=0)
    parser.add_argument("--listen-fd", type=int, action="append", required=True)
    for name in OWN_LISTENERS:
        parser.add_argument(f"--{name}-listen-fd", type=int, action="append", default=[])
    parser.add_argument("--accepting-fd", type=int)
    parser.add_argument("--lifeline-fd", type=int, required=True)
    parser.add_argument("--ready-fd", type=int, required=True)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())

"""The ASGI application of a relay worker, which serves the public listener.

Websockets go to the consumer, messages of partner relays to `relay.federation.inbound`, and a few
HTTP requests are answered here. Everything for operators is on the other listener.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

from redis.exceptions import RedisError

from proto.rmb.reasons import SESSIONS, SessionReason
from relay.analytics import lag
from relay.federation import figures, inbound
from relay.federation.inbound_body import Post
from relay.lattice import figures as lattice_figures
from relay.mux.consumer import MuxEndpoint
from relay.ops import nodes
from relay.ops.exposition import CONTENT_TYPE, render
from relay.ops.health import STATE_REASONS
from relay.ops.workers import list_workers_async
from relay.queues import keys, purging
from relay.sbd.consumer import SbdEndpoint
from relay.server.listen import OWN_LISTENERS
from relay.server.plain_handshake import PlainHandshake
from relay.sessions.consumers.rmb import RmbConsumer
from relay.sessions.runtime import Runtime, install, running
from relay.twins import chain_state

JSON: Final = "application/json"
TEXT: Final = "text/plain; charset=utf-8"
REASONS: Final = {
    **STATE_REASONS,
    "redis_away": "Redis does not answer",
    "draining": "the worker is about to stop",
    "starting": "the worker has not read the operators' decisions yet",
}

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
Answer = tuple[int, str, bytes]
_BANNED: Final = SESSIONS[SessionReason.ADDRESS_BANNED]
BANNED: Final[Answer] = (_BANNED.http_status or 403, TEXT, _BANNED.text.encode())


class RelayApp:
    """The application of one worker."""

    def __init__(
        self,
        config: Any,
        slot: int | str,
        refused: Mapping[str, int],
        places: Mapping[str, frozenset[int | str]],
    ) -> None:
        self._config = config
        self._slot = slot
        self._refused = refused
        self._metrics_readers = [ipaddress.ip_network(net) for net in config.metrics.allow]
        self._websocket = RmbConsumer()  # for every path; stateless, so one is enough
        self._sbd = SbdEndpoint(places["sbd"]) if config.sbd.enabled else None
        self._mux = MuxEndpoint(config.mux.path, places["mux"]) if config.mux.enabled else None
        self._runtime: Runtime | None = None
        self.own_places: Final = frozenset().union(*places.values())
        self.post_paths: Final = [path.encode() for path in inbound.paths(config)]

    def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> Awaitable[None]:
        # Not a coroutine function: each websocket would keep one more coroutine while it is open.
        if scope["type"] == "websocket":
            if self._mux is not None and self._mux.takes(scope):
                return self._mux(scope, receive, send)
            if self._sbd is not None and self._sbd.takes(scope):
                return self._sbd(scope, receive, send)
            return self._websocket(scope, receive, send)
        if scope["type"] == "http":
            return self._http(scope, receive, send)
        return self._lifespan(receive, send)

    async def _http(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        sbd = self._sbd if self._sbd is not None and self._sbd.answers(scope) else None
        if sbd is None and await self._federation(scope, receive, send):
            return
        banned = self._is_banned(scope)
        if sbd is not None and not banned:
            await sbd.answer(scope, receive, send)
            return
        status, content_type, body = BANNED if banned else await self._answer(scope)
        headers = [(b"content-type", content_type.encode())]
        headers.append((b"content-length", b"%d" % len(body)))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            event = await receive()
            if event["type"] == "lifespan.startup":
                self._runtime = Runtime(self._config, self._slot, self._refused)
                await self._runtime.start()
                install(self._runtime)
                await send({"type": "lifespan.startup.complete"})
            else:
                if self._runtime is not None:
                    await self._runtime.stop()
                    install(None)
                await send({"type": "lifespan.shutdown.complete"})
                return

    def take_post(self, post: Post) -> bool:
        """Take a small POST to one of `post_paths`; return False if it has to come by ASGI."""
        return self._runtime is not None and self._runtime.inbound.take_post(post)

    def take_handshake(self, handshake: PlainHandshake) -> None:
        """Take a plain handshake that did not come to one of `own_places`."""
        assert self._runtime is not None  # set before the server accepts connections
        self._runtime.arrivals.take(handshake)

    async def _federation(self, scope: dict[str, Any], receive: Receive, send: Send) -> bool:
        """Answer a request of another relay; return False if it is something else."""
        if scope["method"] != "POST":
            return False
        federation = (await running()).inbound
        if not federation.serves(scope["path"]):
            return False
        await federation.serve(scope, receive, send)
        return True

    def _is_banned(self, scope: dict[str, Any]) -> bool:
        """Check whether a request comes from a banned address, and count it then."""
        address = (scope.get("client") or ("", 0))[0]
        runtime = self._runtime
        return runtime is not None and runtime.worker.upkeep.control.refuses(address)

    async def _answer(self, scope: dict[str, Any]) -> Answer:
        method, path = scope["method"], scope["path"]
        if method == "GET" and path == "/live":
            return 200, JSON, b'{"live": true}'
        if method == "GET" and path == "/ready":
            return self._ready()
        if method == "GET" and path == "/metrics" and self._may_read_metrics(scope):
            return await self._metrics()
        return 404, TEXT, b"not found"

    def _ready(self) -> Answer:
        state = self._runtime.worker.upkeep.state if self._runtime is not None else "redis_away"
        ready = state == "ok"
        reasons = [] if ready else [REASONS.get(state, state)]
        away = self._runtime is not None and self._runtime.source.away
        # Nodes and their errors are only in the log, as this answer is public.
        degraded = ["twins cannot be looked up"] if away else []
        body = json.dumps({"ready": ready, "reasons": reasons, "degraded": degraded}).encode()
        return (200 if ready else 503), JSON, body

    def _may_read_metrics(self, scope: dict[str, Any]) -> bool:
        try:
            address = ipaddress.ip_address((scope.get("client") or ("", 0))[0])
        except ValueError:
            return bool(scope.get("client") is None)  # a Unix socket has no address
        return any(address in network for network in self._metrics_readers)

    async def _metrics(self) -> Answer:
        assert self._runtime is not None
        try:
            workers = await list_workers_async(self._runtime.redis)
            shared = [await figures.read_async(self._runtime.redis)]
            shared.append(purging.figures(await self._runtime.redis.get(keys.PURGED)))
            shared.append(nodes.figures(nodes.read(await self._runtime.redis.hgetall(keys.NODES))))
            if self._config.twins.source == "tfchain":
                state = await chain_state.read_async(self._runtime.redis)
                shared.append(chain_state.figures(state))
            if self._config.analytics.record:
                lakes = await self._runtime.redis.hgetall(keys.LAKES)
                shared.append(lag.figures(lag.parse(lakes)))
            if self._config.lattice.enabled:
                shared.append(await lattice_figures.read_async(self._runtime.redis))
        except RedisError:
            return 503, TEXT, b"redis does not answer"
        return 200, CONTENT_TYPE, render(workers, *shared).encode()


def create_app(
    config: Any,
    slot: int | str = 0,
    refused: Mapping[str, int] | None = None,
    places: Mapping[str, Iterable[int | str]] = MappingProxyType({}),
) -> RelayApp:
    """Return the application of one worker.

    Args:
        config: `rmbsite.config.Config`.
        slot: number of the worker on this host.
        refused: the server's counts of the handshakes that it refuses itself, by its reasons.
        places: ports and paths of the listeners where only `sbd` or `mux` is served.
    """
    own = {name: frozenset(places.get(name, ())) for name in OWN_LISTENERS}
    return RelayApp(config, slot, {} if refused is None else refused, own)

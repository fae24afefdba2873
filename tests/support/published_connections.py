"""Figures of connections with streams, published as workers do, without workers."""

from __future__ import annotations

import json
from typing import Any

from relay.mux.report import ConnectionFigures, StreamFigures
from relay.queues import keys
from tests.support.redis_servers import RedisServer


def connection(number: int, **fields: Any) -> ConnectionFigures:
    """Return the figures of a connection."""
    known: dict[str, Any] = {
        "address": f"192.0.2.1:{5000 + number}", "user_agent": "client/1", "opened_at": 1.7e9,
        "streams": number, "sessions": number, "queued_bytes": 0, "held_bytes": 0,
        "unsent_bytes": 0, "stalls": 0, "bytes_in": 0, "bytes_out": 0,
    }  # fmt: skip
    return ConnectionFigures(number, **(known | fields))


def publish_connections(
    server: RedisServer,
    worker: str,
    connections: list[ConnectionFigures],
    streams: dict[int, list[StreamFigures]] | None = None,
) -> None:
    """Write the figures that a worker publishes about its connections."""
    server.run("SADD", keys.WORKERS, worker)
    server.run("SET", keys.connections(worker), json.dumps(connections))
    server.run("SET", keys.streams(worker), json.dumps(streams or {}))

"""The sections of the configuration for the protocols beside RMB, as :mod:`rmbsite.sections`."""

from __future__ import annotations

import dataclasses

from rmbsite.options import option
from rmbsite.sections import MIB


@dataclasses.dataclass(frozen=True, slots=True)
class SbdConfig:
    """The SBD server beside the relay: clients connect under a public key."""

    enabled: bool = option(
        False,
        "Serve SBD: on the public listener for paths that are a public key, and on sbd.listen.",
    )
    listen: tuple[str, ...] = option(
        (), "Additional addresses that serve only SBD: host:port or unix:/path."
    )
    max_clients: int = option(32_768, "Maximum number of SBD connections of one worker.", minimum=1)
    limit_kbit_per_s: int = option(
        1_000,
        "Kilobits per second an address may send, over all its SBD connections; 0: no limit.",
        minimum=0,
    )
    limit_burst_bytes: int = option(
        262_144, "Bytes an address may send at once after a pause.", minimum=20_000
    )
    idle_ms: int = option(
        10_000,
        "Milliseconds after which the relay drops an SBD connection that sends nothing, or that "
        "has not finished its handshake.",
        minimum=500,
    )
    receiver_bytes: int = option(
        4 * MIB,
        "Bytes that may wait for an SBD client that does not read; above this limit the relay "
        "drops the client.",
        minimum=20_032,
    )
    ipv6_prefix: int = option(
        128,
        "Leading bits of an IPv6 address to which SBD limits apply; 64: all addresses of a /64 "
        "network share one limit.",
        minimum=32,
        maximum=128,
    )
    hook_url: str = option(
        "",
        "URL of a server that decides which clients may connect: the relay sends it the body of "
        "PUT /authenticate, and the server answers with a token. Empty: all clients may connect.",
    )


@dataclasses.dataclass(frozen=True, slots=True)
class MuxConfig:
    """Streams over one websocket, each of which carries a session."""

    enabled: bool = option(
        True,
        "Serve streams: on the public listener for mux.path and for websockets that offer the "
        "subprotocol rmb-streams.v1, and on mux.listen.",
    )
    path: str = option("/streams", "Path on the public listener that serves streams.")
    listen: tuple[str, ...] = option(
        (), "Additional addresses that serve only streams: host:port or unix:/path."
    )
    max_connections: int = option(
        4_096, "Maximum number of connections with streams of one worker.", minimum=1
    )
    max_streams: int = option(
        10_000, "Maximum number of streams, and so of sessions, of one connection.", minimum=1
    )
    stream_bytes: int = option(
        64 * 1024,
        "Bytes a client may send on a stream before the relay has processed them.",
        minimum=4_096,
    )
    connection_bytes: int = option(
        16 * MIB,
        "Bytes that may wait for the sessions of one connection; the rest waits in their queues.",
        minimum=MIB,
    )
    buffered_bytes: int = option(
        256 * MIB,
        "Bytes that may wait for all sessions on streams of one worker; the rest waits in their "
        "queues.",
        minimum=MIB,
    )

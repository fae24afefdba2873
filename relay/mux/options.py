"""What the server of streams is told when it is made, and what it counts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from proto.mux.bounds import MuxBounds

SUBPROTOCOL: Final = "rmb-streams.v1"
"""Of websockets on any path that carry streams."""
ACK_DELAY_MS: Final = 20
"""Clients need no acknowledgement but to go on: several messages of a session share one."""
LINGER_S: Final = 0.25
"""For a client to acknowledge what was sent to a session before it ends with an error code."""
MAX_TOKEN_BYTES: Final = 8 * 1024
"""Of the first message of a stream: the bound of a request line, where a token stands otherwise."""


class MuxOptions(NamedTuple):
    """The bounds of the server.

    Attributes:
        max_connections: of one worker.
        connection_bytes: that may wait, both ways, for the sessions of one connection.
        buffered_bytes: that may wait for all sessions on streams of one worker.
        sign_in_s: for a stream to sign in, and for a connection to open its first session.
        idle_s: of silence that ends a connection without sessions; 0: never.
        max_message_bytes: of an envelope.
        bounds: of a connection.
    """

    max_connections: int
    connection_bytes: int
    buffered_bytes: int
    sign_in_s: float
    idle_s: float
    max_message_bytes: int
    bounds: MuxBounds


@dataclass(slots=True)
class MuxServerCounts:
    """What one worker counted since it started, of connections that have ended too.

    Attributes:
        opened: connections.
        refused: connections, by reason.
        ended: connections, by reason.
        streams: that clients opened.
        refused_streams: of these, by the reason.
        resets: streams that the relay ended with an error code, and halves of streams that clients
            reset; by who did and the code.
        received_bytes, sent_bytes: of streams.
        stalls: times that a stream had bytes to send and its client had not granted any.
    """

    opened: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    ended: Counter[str] = field(default_factory=Counter)
    streams: int = 0
    refused_streams: Counter[str] = field(default_factory=Counter)
    resets: Counter[tuple[str, str]] = field(default_factory=Counter)
    received_bytes: int = 0
    sent_bytes: int = 0
    stalls: int = 0


def mux_options(config: Any) -> MuxOptions:
    """The bounds that the settings ask for.

    Args:
        config: `rmbsite.config.Config`.
    """
    mux, relay = config.mux, config.relay
    return MuxOptions(
        max_connections=mux.max_connections,
        connection_bytes=mux.connection_bytes,
        buffered_bytes=mux.buffered_bytes,
        sign_in_s=relay.handshake_timeout_s,
        idle_s=relay.idle_timeout_s,
        max_message_bytes=relay.max_message_bytes,
        bounds=MuxBounds(
            stream_bytes=mux.stream_bytes,
            max_streams=mux.max_streams,
            ack_delay_ms=ACK_DELAY_MS,
            max_held_bytes=mux.stream_bytes * mux.max_streams,
        ),
    )

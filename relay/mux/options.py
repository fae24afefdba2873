"""Options and counts of the server of streams."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from proto.mux.bounds import MuxBounds

SUBPROTOCOL: Final = "rmb-streams.v1"
"""Subprotocol of websockets that carry streams, on any path."""
ACK_DELAY_MS: Final = 20
"""Milliseconds by which acknowledgements are delayed: clients need them only for credit, so several
messages of a session can share one."""
LINGER_S: Final = 0.25
"""Seconds for a client to acknowledge what was sent to a session, before the stream ends with an
error code."""
MAX_TOKEN_BYTES: Final = 8 * 1024
"""Maximum size of the first message of a stream, which holds the token: that of a request line,
which holds it otherwise."""


class MuxOptions(NamedTuple):
    """The limits of the server.

    Attributes:
        max_connections: maximum number of connections of one worker.
        connection_bytes: bytes that may wait, in both directions, for the sessions of one
            connection.
        buffered_bytes: bytes that may wait for all sessions on streams of one worker.
        sign_in_s: seconds for a stream to sign in, and for a connection to open its first session.
        idle_s: seconds of silence that end a connection without sessions; 0: never.
        max_message_bytes: maximum size of an envelope.
        bounds: limits of a connection.
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
    """Counts of one worker since it started, including connections that have ended.

    Attributes:
        opened: connections that were opened.
        refused: refused connections, by reason.
        ended: ended connections, by reason.
        streams: streams that clients opened.
        refused_streams: refused streams, by reason.
        resets: streams that the relay ended with an error code, and halves of streams that clients
            reset; by side and code.
        received_bytes, sent_bytes: bytes of streams.
        stalls: times that a stream had bytes to send but no credit from its client.
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
    """Return the limits that the settings define.

    Args:
        config: an `rmbsite.config.Config`.
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

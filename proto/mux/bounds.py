"""Constants of the protocol, and limits of a connection (sheet sections 2, 3 and 11)."""

from __future__ import annotations

from typing import Final, NamedTuple

from proto.mux.varint import MAX_VARINT

MAX_HEADER_BYTES: Final = 10
"""Maximum size of a frame's header: an id of 8 bytes, and the type."""
MAX_GRANT: Final = (1 << 32) - 1
"""Maximum number of bytes that one ACK can grant."""
MAX_CREDIT: Final = 1 << 62
"""Maximum number of bytes that all ACKs of a stream may grant together."""
MAX_STREAM_ID: Final = MAX_VARINT
MAX_CODE: Final = MAX_VARINT
MAX_LATE: Final = 1_000
"""Maximum number of remembered streams whose opening timed out. A stream that the other side
accepts later is reset. The limit is for streams that it never accepts."""
MAX_REASON_BYTES: Final = 123
"""Maximum size of the text in a close frame (RFC 6455)."""

NANOS_PER_MS: Final = 1_000_000

NORMAL_CLOSURE: Final = 1000
PROTOCOL_ERROR: Final = 1002


class MuxBounds(NamedTuple):
    """The limits of one connection.

    Attributes:
        stream_bytes: bytes that a stream buffers for its reader, granted to the other side when it
            opens. With a header, they must fit into one message of the websocket.
        piece_bytes: bytes of a stream in one message; then the next stream gets its turn.
        max_streams: open streams that the other side opened; further ones are refused.
        max_held_bytes: bytes granted to all streams together; streams beyond it are refused.
        open_timeout_ms: time for the other side to accept a stream.
        ack_delay_ms: maximum delay before read bytes are acknowledged, if they are less than half
            of `stream_bytes`; 0: no delay.
        close_linger_ms: time after the last bytes of a stream, after which its end is sent even if
            the bytes are not acknowledged.
        first_frame_ms: time for which the accepting side opens no stream, unless it receives a
            frame before.
        ping_interval_ms: silence after which a ping is due; 0: no pings.
        ping_timeout_ms: silence that ends the connection; 0: never.
    """

    stream_bytes: int = 256 * 1024
    piece_bytes: int = 64 * 1024
    max_streams: int = 1_000
    max_held_bytes: int = 256 << 20
    open_timeout_ms: int = 10_000
    ack_delay_ms: int = 0
    close_linger_ms: int = 250
    first_frame_ms: int = 100
    ping_interval_ms: int = 0
    ping_timeout_ms: int = 0


def bounds_ns(milliseconds: int) -> int:
    """Convert a time of the bounds to nanoseconds."""
    return milliseconds * NANOS_PER_MS


def cut_reason(text: str) -> str:
    """Return the beginning of a text that fits into a close frame."""
    return text.encode()[:MAX_REASON_BYTES].decode(errors="ignore")

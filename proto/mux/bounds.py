"""Numbers of the protocol, and the bounds of a connection (sheet sections 2, 3 and 11)."""

from __future__ import annotations

from typing import Final, NamedTuple

from proto.mux.varint import MAX_VARINT

MAX_HEADER_BYTES: Final = 10
"""Of a frame: an id of 8 bytes and the type."""
MAX_GRANT: Final = (1 << 32) - 1
"""Bytes that one ACK can grant."""
MAX_CREDIT: Final = 1 << 62
"""Bytes that all ACKs of a stream may grant together."""
MAX_STREAM_ID: Final = MAX_VARINT
MAX_CODE: Final = MAX_VARINT
MAX_LATE: Final = 1_000
"""Streams that were not accepted in time and may still be: the other side is told then that they
are over. It is bounded for those that it will never accept."""
MAX_REASON_BYTES: Final = 123
"""Of the text of a close frame (RFC 6455)."""

NANOS_PER_MS: Final = 1_000_000

NORMAL_CLOSURE: Final = 1000
PROTOCOL_ERROR: Final = 1002


class MuxBounds(NamedTuple):
    """The bounds of one connection.

    Attributes:
        stream_bytes: that a stream holds for its reader, granted to the other side when it opens.
            With a header it must fit into a message of the websocket.
        piece_bytes: of a stream in one message; then it is the next stream's turn.
        max_streams: open at once that the other side opened; more are refused.
        max_held_bytes: granted to all streams together; streams beyond it are refused.
        open_timeout_ms: for the other side to accept a stream.
        ack_delay_ms: within which bytes that were read are acknowledged, if they are less than half
            of what a stream holds; 0: at once.
        close_linger_ms: after the last bytes of a stream; then its end is sent though they are not
            acknowledged.
        first_frame_ms: for which the accepting side opens no stream, unless a frame came before.
        ping_interval_ms: of silence after which a ping is due; 0 sends none.
        ping_timeout_ms: of silence that ends the connection; 0 waits for ever.
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
    """Return a time of the bounds in nanoseconds."""
    return milliseconds * NANOS_PER_MS


def cut_reason(text: str) -> str:
    """Return what a close frame can hold of a text."""
    return text.encode()[:MAX_REASON_BYTES].decode(errors="ignore")

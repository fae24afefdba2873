"""Sizes and times of SBD (sheet sections 1, 5 and 12)."""

from __future__ import annotations

from typing import Final

KEY_BYTES: Final = 32
HEADER_BYTES: Final = 32
"""A key, or a command: `COMMAND_ZEROS` zero bytes and a name of four."""
COMMAND_ZEROS: Final = 28
NONCE_BYTES: Final = 32
SIGNATURE_BYTES: Final = 64
MAX_MESSAGE_BYTES: Final = 20_000
"""A whole websocket message, header included."""
MAX_PAYLOAD_BYTES: Final = MAX_MESSAGE_BYTES - HEADER_BYTES
PATH_CHARS: Final = 43
"""A key in base64url without padding."""
MAX_INT: Final = 2**31 - 1
"""The largest number on the wire: signed, 32 bits."""
MIN_IDLE_MS: Final = 100
"""A client takes no shorter silence from its server: it would only say that it is there."""

DEFAULT_BYTE_NANOS: Final = 8_000
"""Nanoseconds a byte costs: 1,000 kbit/s. What a client assumes that was told nothing."""
DEFAULT_BURST_BYTES: Final = 16 * 16 * 1024
DEFAULT_IDLE_MS: Final = 10_000
"""Silence that ends a connection. What a client assumes that was told nothing."""
UNLIMITED_BYTE_NANOS: Final = 1
"""What a server without a limit announces."""

PACE_PERCENT: Final = 110
"""A client takes so much of the time it is told for each byte."""
KEEP_ALIVE_PART: Final = 2
"""A client says something each half of the time after which silence ends the connection."""
MAX_WAITING_BYTES: Final = 8 * MAX_MESSAGE_BYTES
"""Bytes a client holds for its pace; further sends wait."""

STREAM_HEADER_BYTES: Final = 24
STREAM_OVERHEAD_BYTES: Final = 17
"""What an encrypted message is longer than its text."""
MAX_PLAINTEXT_BYTES: Final = MAX_PAYLOAD_BYTES - 1 - STREAM_OVERHEAD_BYTES
MAX_PEERS: Final = 4096
PEER_IDLE_NS: Final = 10_000_000_000
"""Time without a message either way after which a peer's streams are forgotten."""
RENEWAL_PAUSE_NS: Final = 1_000_000_000
"""Between two requests for a new stream to one peer: each message that cannot be opened asks."""

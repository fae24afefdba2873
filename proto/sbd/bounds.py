"""Sizes and times of SBD (sheet sections 1, 5 and 12)."""

from __future__ import annotations

from typing import Final

KEY_BYTES: Final = 32
HEADER_BYTES: Final = 32
"""Size of a header: a key, or a command of `COMMAND_ZEROS` zero bytes and a name of four."""
COMMAND_ZEROS: Final = 28
NONCE_BYTES: Final = 32
SIGNATURE_BYTES: Final = 64
MAX_MESSAGE_BYTES: Final = 20_000
"""Maximum size of a whole websocket message, including the header."""
MAX_PAYLOAD_BYTES: Final = MAX_MESSAGE_BYTES - HEADER_BYTES
PATH_CHARS: Final = 43
"""Length of a key in base64url without padding."""
MAX_INT: Final = 2**31 - 1
"""Largest number on the wire: signed, 32 bits."""
MIN_IDLE_MS: Final = 100
"""Lowest idle time that a client accepts from its server: with a lower one, it would be busy with
sending keep-alives."""

DEFAULT_BYTE_NANOS: Final = 8_000
"""Nanoseconds that each byte takes: 1,000 kbit/s. A client assumes this until the server gives a
limit."""
DEFAULT_BURST_BYTES: Final = 16 * 16 * 1024
DEFAULT_IDLE_MS: Final = 10_000
"""Silence that ends a connection. A client assumes this until the server gives a limit."""
UNLIMITED_BYTE_NANOS: Final = 1
"""Value that a server without a limit announces."""

PACE_PERCENT: Final = 110
"""Percentage of the announced time for each byte that a client takes."""
KEEP_ALIVE_PART: Final = 2
"""Divisor of the idle time: a client sends something each time half of it has passed."""
MAX_WAITING_BYTES: Final = 8 * MAX_MESSAGE_BYTES
"""Number of bytes that a client queues to keep its pace; further sends wait."""

STREAM_HEADER_BYTES: Final = 24
STREAM_OVERHEAD_BYTES: Final = 17
"""Number of bytes by which an encrypted message is longer than its plaintext."""
MAX_PLAINTEXT_BYTES: Final = MAX_PAYLOAD_BYTES - 1 - STREAM_OVERHEAD_BYTES
MAX_PEERS: Final = 4096
PEER_IDLE_NS: Final = 10_000_000_000
"""Time without a message in either direction after which the streams of a peer are forgotten."""
RENEWAL_PAUSE_NS: Final = 1_000_000_000
"""Minimum time between two requests for a new stream to one peer: each message that cannot be
decrypted causes a request."""

"""Limits of the test node, each with its unit and reason.

Most are a real node's defaults, so that a client meets the same limits; the others keep a faulty
test from filling memory or the disk.
"""

from __future__ import annotations

from typing import Final

MAX_REQUEST_BYTES: Final = 15 * 1024 * 1024
"""Maximum size of one websocket message; a node's default. The longest transaction has 10 MiB as
hex."""

MAX_CONNECTIONS: Final = 100
"""Maximum number of connections; a node's default."""

MAX_SUBSCRIPTIONS: Final = 1024
"""Maximum number of subscriptions of one connection; a node's default."""

MAX_WAITING_MESSAGES: Final = 8192
"""Maximum number of unsent answers and notifications of one connection; beyond, it is closed."""

MAX_WAITING_BYTES: Final = 64 * 1024 * 1024
"""Maximum size of the unsent messages of one connection."""

MAX_HELD_ANSWERS: Final = 10_000
"""Maximum number of answers of one connection that the knob `held` keeps back."""

MAX_KEYS_PER_PAGE: Final = 1000
"""Maximum number of keys of state_getKeysPaged; a node's limit."""

MAX_QUERIED_KEYS: Final = 1000
"""Maximum number of keys, or blocks, of one state query: as many as a page can have."""

MAX_KEY_BYTES: Final = 1024
"""Maximum size of a storage key; those of this runtime have up to 80 bytes."""

MAX_ID_CHARS: Final = 128
"""Maximum length of a request id that is text, and of a subscription id."""

MAX_METHOD_CHARS: Final = 128
"""Length to which the name of a method is truncated in an error message."""

MAX_READY: Final = 8192
"""Maximum number of transactions that wait for the next block; a node's default."""

MAX_FUTURE: Final = 512
"""Maximum number of transactions that wait for an earlier nonce; a node's default."""

MAX_BLOCK_BYTES: Final = 3_932_160
"""Maximum size of the transactions of one block: three quarters of 5 MiB, as in the runtime."""

MAX_BLOCKS: Final = 200_000
"""Maximum number of blocks of a chain, including retracted ones: two weeks at one per 6 s, with 2
KB of memory each."""

MAX_BLOCKS_PER_CALL: Final = 20_000
"""Maximum number of blocks that one `dev_newBlocks` or `dev_fork` makes: some seconds of work."""

MAX_TOLD_BLOCKS_PER_CALL: Final = 1000
"""The same if every block is announced: far below the number of messages that a connection may
queue."""

MAX_TWINS_PER_CALL: Final = 10_000
"""Maximum number of twins of one `dev_putTwins`; the block's events stay below their own bound."""

MAX_GENESIS_TWINS: Final = 200_000
"""Maximum number of twins in a new chain, generated or imported."""

MAX_BLOCK_TIME_S: Final = 3600.0
MAX_DELAY_S: Final = 600.0
MAX_NAMED_METHODS: Final = 64
"""Maximum number of names in the knobs `held` and `failing`."""

CLOSE_TIMEOUT_S: Final = 1.0
"""Time-out of a connection's close handshake when the node stops."""

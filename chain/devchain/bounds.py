"""Limits of the stand-in node: a constant, its unit, its reason.

Most are a node's own defaults, so that a client meets the same walls; the others keep a test that
went wrong from filling memory or the disk.
"""

from __future__ import annotations

from typing import Final

MAX_REQUEST_BYTES: Final = 15 * 1024 * 1024
"""One websocket message; a node's default. The longest transaction as hex has 10 MiB."""

MAX_CONNECTIONS: Final = 100
"""A node's default."""

MAX_SUBSCRIPTIONS: Final = 1024
"""Of one connection; a node's default."""

MAX_WAITING_MESSAGES: Final = 8192
"""Answers and notifications one connection has not taken yet; beyond, it is closed."""

MAX_WAITING_BYTES: Final = 64 * 1024 * 1024
"""The same in bytes."""

MAX_HELD_ANSWERS: Final = 10_000
"""Answers kept back by the knob `held`, of one connection."""

MAX_KEYS_PER_PAGE: Final = 1000
"""state_getKeysPaged; a node's limit."""

MAX_QUERIED_KEYS: Final = 1000
"""Keys, or blocks, of one state query; as many as a page can have given."""

MAX_KEY_BYTES: Final = 1024
"""A storage key; those of this runtime have up to 80 bytes."""

MAX_ID_CHARS: Final = 128
"""The id of a request, if it is text; a subscription id."""

MAX_METHOD_CHARS: Final = 128
"""The name of a method, before it goes into an error's text."""

MAX_READY: Final = 8192
"""Transactions that wait for the next block; a node's default."""

MAX_FUTURE: Final = 512
"""Transactions that wait for an earlier nonce; a node's default."""

MAX_BLOCK_BYTES: Final = 3_932_160
"""Transactions of one block: three quarters of 5 MiB, as the runtime has it."""

MAX_BLOCKS: Final = 200_000
"""Blocks of a chain, retracted ones included: two weeks of one each 6 s, 2 KB of memory each."""

MAX_BLOCKS_PER_CALL: Final = 20_000
"""What `dev_newBlocks` and `dev_fork` make at once: some seconds of work."""

MAX_TOLD_BLOCKS_PER_CALL: Final = 1000
"""The same when every one is announced: far below what a connection may leave waiting."""

MAX_TWINS_PER_CALL: Final = 10_000
"""What `dev_putTwins` takes at once; the block's events stay below their own bound."""

MAX_GENESIS_TWINS: Final = 200_000
"""Twins a new chain begins with, made up or imported."""

MAX_BLOCK_TIME_S: Final = 3600.0
MAX_DELAY_S: Final = 600.0
MAX_NAMED_METHODS: Final = 64
"""Names in the knobs `held` and `failing`."""

CLOSE_TIMEOUT_S: Final = 1.0
"""How long a connection may take to say goodbye when the node stops."""

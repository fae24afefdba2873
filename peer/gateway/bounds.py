"""Limits of the gateway: a constant, its unit, its reason."""

from __future__ import annotations

from typing import Final

MAX_QUEUE_ENTRIES: Final = 10_000
"""Of a command's list or a `ret` list; the oldest are dropped, as in the reference."""

QUEUE_TTL_S: Final = 3600
"""A `ret` list that got nothing for so long is removed: all in it expired half of that ago, and a
program may be gone when its answer comes. A command's list, which another twin chooses, is removed
when all in it has expired, and after so long at the latest."""

MAX_COMMAND_BYTES: Final = 256
"""It becomes part of a Redis key; those in use have 10 to 40."""

MAX_RET_BYTES: Final = 512
"""The name of a list for answers; clients use a UUID, or a prefix and a UUID."""

MAX_REFERENCE_BYTES: Final = 4096
"""A program's own reference, kept for each request that waits for answers."""

MAX_DESTINATIONS: Final = 1000
"""Of one request. Each is an envelope of its own, sealed for its receiver."""

MAX_BODY_BYTES: Final = 24 * 1024 * 1024
"""An entry of a system list: base64 of the largest message a relay takes, and its JSON."""

TAKE_ENTRIES: Final = 64
"""Taken from a system list in one step: one step for many when there are many."""

TAKE_FIRST: Final = 4
"""The same when there were few before: each comes with a name of 53 bytes, used or not."""

TAKE_BYTES: Final = 1024 * 1024
"""The same in bytes; one entry always passes."""

WAIT_S: Final = 20.0
"""How long one blocking read waits. A connection that died unnoticed is found at its end."""

ROOM_POLL_S: Final = 0.05
"""Between looks for room: for the next portion of a large request, and while a former process'
messages are taken up."""

PORTION_BYTES: Final = 4 * 1024 * 1024
"""Of the messages of one request that are written to Redis in one step; one always passes."""

MAX_IN_HAND: Final = 4096
"""Entries taken whose messages are not settled; above it nothing more is taken."""

MAX_LOOK_UP_BYTES: Final = 64 * 1024 * 1024
"""Of entries taken whose twins are looked up, or that wait for room; above it nothing more is
taken."""

BACKLOG_ENTRIES: Final = 20_000
"""Kept in memory beside Redis, so that an answer needs no look-up; others are looked up."""

SEEN_ENTRIES: Final = 10_000
"""Signatures kept in Redis, so that a relay which sends again what it could not know to have
arrived is recognised after the gateway was killed."""

MAX_DEAD: Final = 1000
"""Unreadable entries kept to be looked at."""

MAX_DEAD_BYTES: Final = 16 * 1024
"""Kept of one of them."""

PIPE_BYTES: Final = 32 * 1024 * 1024
"""Writes that wait for Redis; above it the relays are not read and nothing is taken."""

MAX_HANDLERS: Final = 1000
"""Requests that modules work on at a time; more are refused."""

MAX_HANDLERS_BYTES: Final = 64 * 1024 * 1024
"""The same in bytes of memory; one always passes."""

MAX_WAITING: Final = 4096
"""Incoming messages that wait for Redis to say whom they answer, or for a twin to be looked up anew
because they did not open; with more the inbox waits."""

MAX_WAITING_BYTES: Final = 64 * 1024 * 1024
"""The same in bytes."""

REFRESH_S: Final = 5.0
"""A twin whose message does not open is looked up anew at most so often: its key may have changed,
but anybody can send what does not open."""

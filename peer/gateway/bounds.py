"""Limits of the gateway: each is a constant with its unit and the reason for it."""

from __future__ import annotations

from typing import Final

MAX_QUEUE_ENTRIES: Final = 10_000
"""Maximum number of entries in a command's list or a `ret` list; the oldest are dropped, as in the
reference."""

QUEUE_TTL_S: Final = 3600
"""Seconds after which an idle `ret` list is removed.

Everything in it expired after half of that time, and a program may have ended before its answer
comes. A command's list, whose name another twin chooses, is removed when everything in it has
expired, and after this time at the latest."""

MAX_COMMAND_BYTES: Final = 256
"""Maximum size of a command, which becomes part of a Redis key; usual ones have 10 to 40 bytes."""

MAX_RET_BYTES: Final = 512
"""Maximum size of the name of a list for answers; clients use a UUID, or a prefix and a UUID."""

MAX_REFERENCE_BYTES: Final = 4096
"""Maximum size of a program's own reference, kept for each request that waits for answers."""

MAX_DESTINATIONS: Final = 1000
"""Maximum number of receivers of one request. Each gets its own envelope, sealed for it."""

MAX_BODY_BYTES: Final = 24 * 1024 * 1024
"""Maximum size of an entry of a system list: base64 of the largest message that a relay accepts,
and its JSON."""

TAKE_ENTRIES: Final = 64
"""Maximum number of entries taken from a system list in one step while the list is long."""

TAKE_FIRST: Final = 4
"""The same while the list is short: each possible entry costs a field name of 53 bytes."""

TAKE_BYTES: Final = 1024 * 1024
"""Maximum size of the entries taken in one step, in bytes; one entry is always taken."""

WAIT_S: Final = 20.0
"""Seconds that one blocking read waits, after which an unnoticed loss of connection is found."""

ROOM_POLL_S: Final = 0.05
"""Seconds between checks for room: for the next portion of a large request, and while messages of a
former process are resumed."""

PORTION_BYTES: Final = 4 * 1024 * 1024
"""Maximum size of the messages of one request that are written to Redis in one step, in bytes; one
message is always written."""

MAX_IN_HAND: Final = 4096
"""Maximum number of entries taken whose messages are not settled; above it no more are taken."""

MAX_LOOK_UP_BYTES: Final = 64 * 1024 * 1024
"""Maximum size of entries taken whose twins are looked up, or that wait for room, in bytes; above
it no more are taken."""

BACKLOG_ENTRIES: Final = 20_000
"""Maximum number of backlog entries cached in memory; other answers need a look-up in Redis."""

SEEN_ENTRIES: Final = 10_000
"""Number of signatures kept in Redis.

A relay may send a message again because it could not know that it had arrived. The signatures let
the gateway recognise such a message after it was killed."""

MAX_DEAD: Final = 1000
"""Maximum number of dead letters kept for inspection."""

MAX_DEAD_BYTES: Final = 16 * 1024
"""Maximum size kept of one dead letter, in bytes."""

PIPE_BYTES: Final = 32 * 1024 * 1024
"""Size of writes waiting for Redis above which relays are not read and no entries are taken."""

MAX_HANDLERS: Final = 1000
"""Maximum number of requests that modules process at a time; more are refused."""

MAX_HANDLERS_BYTES: Final = 64 * 1024 * 1024
"""The same in bytes of memory; one request is always accepted."""

MAX_WAITING: Final = 4096
"""Maximum number of incoming messages that wait for a look-up; above it the inbox waits.

The look-up is either in Redis, for the request that a message answers, or a repeated one of a
twin whose message could not be opened."""

MAX_WAITING_BYTES: Final = 64 * 1024 * 1024
"""Maximum size of these messages, in bytes."""

REFRESH_S: Final = 5.0
"""Minimum interval between repeated look-ups of a twin whose messages cannot be opened, in seconds:
its key may have changed, but anyone can send such messages."""

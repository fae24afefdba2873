"""Names of the gateway's Redis keys; the first five are those of rmb-peer 1.5.

msgbus.system.local       list; programs push requests to be sent
msgbus.system.reply       list; services push answers
msgbus.<command>          list; services pop requests
<ret>                     list; a program pops answers, under the name it chose
msgbus.backlog.<uid>      protobuf Backlog with a time to live; the program that waits for answers
msgbus.processing         hash; entries taken from a system list and not settled
msgbus.committed          text; number of the last batch of writes that was applied; watched
msgbus.dead               list; unreadable entries, newest first
msgbus.seen               list; signatures of the newest incoming messages
msgbus.module.<prefix>    hash; stored values of a module
"""

from __future__ import annotations

from typing import Final

from peer.gateway.bounds import MAX_COMMAND_BYTES

LOCAL: Final = b"msgbus.system.local"
REPLY: Final = b"msgbus.system.reply"
PROCESSING: Final = b"msgbus.processing"
COMMITTED: Final = b"msgbus.committed"
DEAD: Final = b"msgbus.dead"
SEEN: Final = b"msgbus.seen"

_PREFIX: Final = "msgbus."
_OWN: Final = frozenset({"system", "backlog", "processing", "committed", "dead", "seen", "module"})


def command(name: str) -> bytes:
    """Return the key of a command's list."""
    return (_PREFIX + name).encode()


def is_servable(name: str) -> bool:
    """Return whether a command can have a list: it has a name, and is not a key of the gateway.

    Another twin chooses the command: `system.local` would let it write requests in our name.
    """
    return 0 < len(name.encode()) <= MAX_COMMAND_BYTES and name.partition(".")[0] not in _OWN


def is_own(queue: bytes) -> bool:
    """Return whether a list that a program names is a key of the gateway."""
    prefix = _PREFIX.encode()
    return queue.startswith(prefix) and not is_servable(
        queue.removeprefix(prefix).decode(errors="replace")
    )


def backlog(uid: str) -> bytes:
    """Return the key of a request's backlog entry."""
    return f"{_PREFIX}backlog.{uid}".encode()


def module(prefix: str) -> bytes:
    """Return the key of a module's stored values."""
    return f"{_PREFIX}module.{prefix}".encode()

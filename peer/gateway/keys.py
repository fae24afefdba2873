"""Names of the gateway's Redis keys; the first five are those of rmb-peer 1.5.

msgbus.system.local       list; programs ask for requests to be sent
msgbus.system.reply       list; services answer
msgbus.<command>          list; services take requests
<ret>                     list; a program takes answers, under the name it chose
msgbus.backlog.<uid>      protobuf Backlog with a time to live; whom to give the answers
msgbus.processing         hash; what was taken from a system list and is not settled
msgbus.committed          text; number of the last batch of writes that was applied; watched
msgbus.dead               list; what could not be read, newest first
msgbus.seen               list; signatures of the newest incoming messages
msgbus.module.<prefix>    hash; what a module keeps
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
    """The list of a command."""
    return (_PREFIX + name).encode()


def is_servable(name: str) -> bool:
    """Whether there can be a list of a command: it has a name, and is no key of the gateway's own.

    Another twin chooses the command: `system.local` would let it write requests in our name.
    """
    return 0 < len(name.encode()) <= MAX_COMMAND_BYTES and name.partition(".")[0] not in _OWN


def is_own(queue: bytes) -> bool:
    """Whether a list that a program names is a key of the gateway's own."""
    prefix = _PREFIX.encode()
    return queue.startswith(prefix) and not is_servable(
        queue.removeprefix(prefix).decode(errors="replace")
    )


def backlog(uid: str) -> bytes:
    """The backlog entry of a request."""
    return f"{_PREFIX}backlog.{uid}".encode()


def module(prefix: str) -> bytes:
    """What a module keeps."""
    return f"{_PREFIX}module.{prefix}".encode()

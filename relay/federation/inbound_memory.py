"""Marks of messages of partner relays that were stored lately, so that none is stored twice.

A relay that got no answer in time sends the same message again, and any relay that carried a
message can bring it as often as it wants. The script that stores a message also keeps its mark in
Redis (`relay/queues/lua/take.lua`), so both survive the same failures, and of two workers that take
the same message only one stores it. This module asks for the marks before a message is charged to a
limit or a share, and knows which messages the worker is taking itself.

A mark is a hash of the signature and of what the source twin signed, so another encoding of the
same message has the same mark. For a trusted relay, whose signatures are not checked, it is a hash
of the bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from itertools import chain, compress
from typing import Any, Final

from redispipe import resp
from relay.queues import keys
from relay.queues.batch import TAKEN_PERIOD_S, TAKEN_PERIODS

MARK_BYTES: Final = 12
"""Size of a mark, in bytes. With five million marks in Redis a new message is mistaken for one of
them once in 10^22."""
MARKED_BYTES: Final = 4096
"""Bytes hashed of an envelope whose signature is not checked, with its uid, times and addresses."""
REMEMBERED_PER_MINUTE: Final = 500_000
"""Messages that one worker marks per minute; a mark takes 40 to 64 bytes in Redis. A repeat of a
message above it may be stored twice."""


def signed_mark(source: int, destination: int, digest: bytes, signature: bytes) -> bytes:
    """Return the mark of a message.

    Args:
        source: the source twin.
        destination: the destination twin.
        digest: hash that the source twin signed.
        signature: its signature.
    """
    # The fields hashed into the digest have no separators, so the mark includes the twins again.
    return _hash(b"%d>%d:%b%b" % (source, destination, digest, signature))


def trusted_mark(payload: bytes) -> bytes:
    """Return the mark of a message whose signature is not checked."""
    return _hash(payload[:MARKED_BYTES])


def _hash(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=MARK_BYTES).digest()


class Memory:
    """The memory of one worker.

    Attributes:
        under_way: marks of messages that this worker is deciding now.
        forgotten: number of messages stored without a mark, as there were too many.
    """

    def __init__(self, per_minute: int = REMEMBERED_PER_MINUTE) -> None:
        """
        Args:
            per_minute: number of messages to mark per minute; more are counted as forgotten.
        """
        self.under_way: set[bytes] = set()
        self.forgotten = 0
        self._per_minute = per_minute
        self._minute = 0
        self._noted = 0  # in this minute

    def has_room(self, now_s: float) -> bool:
        """Return whether one more message is to be marked, and count it."""
        minute = int(now_s // 60)
        if minute != self._minute:
            self._minute = minute
            self._noted = 0
        if self._noted >= self._per_minute:
            self.forgotten += 1
            return False
        self._noted += 1
        return True


def look(
    marks: Sequence[bytes],
    now_s: float,
    submit: Callable[[bytes, Callable[[Any], None], int], None],
    then: Callable[[set[bytes] | None], None],
) -> None:
    """Ask Redis which messages were stored lately.

    Args:
        marks: marks of the messages.
        now_s: unix time. If the clock of Redis is ahead, the latest marks may be missed: it is the
            script that prevents storing a message twice.
        submit: sends commands, and skips the given number of replies.
        then: called with the marks that were found; with None if they cannot be known now.
    """

    def answered(reply: Any) -> None:
        if not isinstance(reply, list) or not all(isinstance(each, list) for each in reply):
            then(None)
            return
        found = (compress(marks, each) for each in reply)
        then(set(chain.from_iterable(found)))

    period = int(now_s // TAKEN_PERIOD_S)
    names = [f"{keys.TAKEN}{period - back}" for back in range(TAKEN_PERIODS)]
    commands = [resp.command("SMISMEMBER", name, *marks) for name in names]
    submit(b"".join([resp.MULTI, *commands, resp.EXEC]), answered, 1 + len(commands))

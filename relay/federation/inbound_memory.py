"""Which messages of other relays were stored lately: one that comes again is not stored twice.

A relay that got no answer in time sends the same message again, and anybody who carried a message
can bring it as often as it wants. The mark of a message is kept in Redis, by the script that stores
it (`relay/queues/lua/take.lua`), so both survive the same failures, and of two workers that take
the same message one stores it. Here a worker asks for the marks before it charges a message to
a limit or a share, and knows which messages it is taking itself.

A mark is a hash of what the source twin signed and its signature: another encoding of the same
message has the same mark. For a trusted relay, whose signatures nobody checks, it is one of the
bytes.
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
"""With five million marks in Redis a new message is mistaken for one of them once in 10^22."""
MARKED_BYTES: Final = 4096
"""Of an envelope whose signature is not checked: its uid, times and addresses are among them."""
REMEMBERED_PER_MINUTE: Final = 500_000
"""By one worker: 40 to 64 bytes each in Redis. Above it a repeat may be stored twice."""


def signed_mark(source: int, destination: int, digest: bytes, signature: bytes) -> bytes:
    """Return the mark of a message.

    Args:
        source: its twin.
        destination: the twin it is for.
        digest: what its source twin signed.
        signature: of that.
    """
    # The digest has no separators, so the twins are named once more.
    return _hash(b"%d>%d:%b%b" % (source, destination, digest, signature))


def trusted_mark(payload: bytes) -> bytes:
    """Return the mark of a message whose signature is not checked."""
    return _hash(payload[:MARKED_BYTES])


def _hash(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=MARK_BYTES).digest()


class Memory:
    """One worker's part in it.

    Attributes:
        under_way: marks of messages that this worker is taking now.
        forgotten: messages that were stored without a mark, as there were too many.
    """

    def __init__(self, per_minute: int = REMEMBERED_PER_MINUTE) -> None:
        """
        Args:
            per_minute: messages to remember; more are counted as forgotten.
        """
        self.under_way: set[bytes] = set()
        self.forgotten = 0
        self._per_minute = per_minute
        self._minute = 0
        self._noted = 0  # in this minute

    def has_room(self, now_s: float) -> bool:
        """Return whether one more message is to be remembered, and count it."""
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
        marks: of the messages.
        now_s: unix time. Where the clock of Redis is ahead, the latest may be missed: it is the
            script that stores no message twice.
        submit: sends commands, of whose replies so many are skipped.
        then: called with the marks of those that were; with None when it cannot be known now.
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

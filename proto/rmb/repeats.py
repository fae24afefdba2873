"""Which verified messages a peer has had already.

A relay delivers at least once: what a dying connection may not have got comes again, byte for byte.
A repeat has the source address, kind, uid and signature of a message that is not yet expired; two
different answers to one request differ in their signature and are both let through. Ask only about
messages whose signature was checked, so that nobody can make a message of another one a repeat.
"""

from __future__ import annotations

from collections import deque
from typing import TypeAlias

from proto.rmb.address import SessionKey
from proto.rmb.bounds import MAX_REMEMBERED_MESSAGES

_Key: TypeAlias = tuple[SessionKey, str, str, bytes]


class Repeats:
    """A memory of messages until they expire, of the newest `capacity` of them at most."""

    def __init__(self, capacity: int = MAX_REMEMBERED_MESSAGES) -> None:
        if capacity < 1:
            raise ValueError("the capacity must be at least 1")
        self._capacity = capacity
        self._deadlines: dict[_Key, int] = {}
        self._order: deque[_Key] = deque()  # the same keys, oldest first

    def __len__(self) -> int:
        return len(self._deadlines)

    def seen(
        self, source: SessionKey, kind: str, uid: str, signature: bytes, deadline: int, now: int
    ) -> bool:
        """Says whether this message was here before, and remembers it.

        Args:
            source: the session it comes from.
            kind: name of its message field.
            uid: of its request.
            signature: as it is in the envelope.
            deadline: unix second from which on it is expired.
            now: unix seconds.
        """
        key = (source, kind, uid, signature)
        deadlines, order = self._deadlines, self._order
        known = deadlines.get(key)
        if known is not None:
            if known > now:
                return True
            # Expired, but still in the order behind somebody who lives longer: it stays there.
            deadlines[key] = deadline
            return False
        # What expired at the old end goes first; the newest push out the oldest of what is left.
        while order and (deadlines[order[0]] <= now or len(order) >= self._capacity):
            del deadlines[order.popleft()]
        deadlines[key] = deadline
        order.append(key)
        return False

"""Which verified messages a peer has had already.

A relay delivers at least once: what a dying connection may not have got comes again, byte for byte.
A repeat has the signature of a message that is not yet expired; two different answers to one
request differ in it and are both let through. Nothing else is looked at: what is signed has no
separators, so the same signature fits a message whose uid ends a byte earlier, where its tags
begin. Ask only about messages whose signature was checked, so that nobody can make a message of
another one a repeat.
"""

from __future__ import annotations

from collections import deque

from proto.rmb.bounds import MAX_REMEMBERED_MESSAGES


class Repeats:
    """A memory of messages until they expire, of the newest `capacity` of them at most."""

    def __init__(self, capacity: int = MAX_REMEMBERED_MESSAGES) -> None:
        if capacity < 1:
            raise ValueError("the capacity must be at least 1")
        self._capacity = capacity
        self._deadlines: dict[bytes, int] = {}  # by signature
        self._order: deque[bytes] = deque()  # the same, oldest first

    def __len__(self) -> int:
        return len(self._deadlines)

    def seen(self, signature: bytes, deadline: int, now: int) -> bool:
        """Says whether this message was here before, and remembers it.

        Args:
            signature: as it is in the envelope.
            deadline: unix second from which on it is expired.
            now: unix seconds.
        """
        deadlines, order = self._deadlines, self._order
        known = deadlines.get(signature)
        if known is not None:
            if known > now:
                return True
            # Expired, but still in the order behind somebody who lives longer: it stays there.
            deadlines[signature] = deadline
            return False
        # What expired at the old end goes first; the newest push out the oldest of what is left.
        while order and (deadlines[order[0]] <= now or len(order) >= self._capacity):
            del deadlines[order.popleft()]
        deadlines[signature] = deadline
        order.append(signature)
        return False

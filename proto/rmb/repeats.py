"""Detection of verified messages that a peer has already received.

A relay delivers at least once: messages that a broken connection may not have delivered are sent
again, byte for byte. A repeat has the signature of a message that is not yet expired. Two different
answers to one request differ in it and are both accepted. No other field is compared: the signed
fields have no separators, so the same signature fits a message whose uid ends a byte earlier, where
its tags begin. Check only messages whose signature was verified, so that no other twin can make a
message look like a repeat.
"""

from __future__ import annotations

from collections import deque

from proto.rmb.bounds import MAX_REMEMBERED_MESSAGES


class Repeats:
    """Memory of messages until they expire, limited to the newest `capacity` messages."""

    def __init__(self, capacity: int = MAX_REMEMBERED_MESSAGES) -> None:
        if capacity < 1:
            raise ValueError("the capacity must be at least 1")
        self._capacity = capacity
        self._deadlines: dict[bytes, int] = {}  # by signature
        self._order: deque[bytes] = deque()  # the same, oldest first

    def __len__(self) -> int:
        return len(self._deadlines)

    def seen(self, signature: bytes, deadline: int, now: int) -> bool:
        """Return whether this message was received before, and remember it.

        Args:
            signature: signature of the envelope.
            deadline: Unix second from which on it is expired.
            now: Unix seconds.
        """
        deadlines, order = self._deadlines, self._order
        known = deadlines.get(signature)
        if known is not None:
            if known > now:
                return True
            # It is expired but still in the queue behind a message with a later deadline; it stays
            # there.
            deadlines[signature] = deadline
            return False
        # Remove expired messages at the old end first, then the oldest ones if there are too many.
        while order and (deadlines[order[0]] <= now or len(order) >= self._capacity):
            del deadlines[order.popleft()]
        deadlines[signature] = deadline
        order.append(signature)
        return False

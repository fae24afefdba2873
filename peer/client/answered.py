"""Answers that were sent, kept for repeated requests.

A request is repeated when its connection broke before the relay had confirmed it. If the first copy
had arrived nevertheless, its answer may have been lost with that connection. So a repeat is not
carried out again, but answered again, with the same bytes.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TypeAlias

from peer.client.bounds import MAX_KEPT_ANSWERS, MAX_KEPT_BYTES
from proto.rmb.address import SessionKey

_Key: TypeAlias = tuple[SessionKey, str]


class Answered:
    """The newest answers, within limits of number and bytes."""

    def __init__(
        self, capacity: int = MAX_KEPT_ANSWERS, capacity_bytes: int = MAX_KEPT_BYTES
    ) -> None:
        self._capacity = capacity
        self._capacity_bytes = capacity_bytes
        self._bytes = 0
        self._kept: OrderedDict[_Key, bytes] = OrderedDict()

    def keep(self, source: SessionKey, uid: str, answer: bytes) -> None:
        """Store the answer to a request."""
        kept = self._kept
        former = kept.pop((source, uid), b"")
        kept[source, uid] = answer
        self._bytes += len(answer) - len(former)
        while len(kept) > self._capacity or self._bytes > self._capacity_bytes:
            _, oldest = kept.popitem(last=False)
            self._bytes -= len(oldest)

    def get(self, source: SessionKey, uid: str) -> bytes | None:
        """Return the answer to a request; None if it has none yet, or it is no longer kept."""
        return self._kept.get((source, uid))

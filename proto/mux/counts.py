"""Counts of a connection, for its owner and for operators."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from proto.mux.errors import Violation
from proto.mux.events import FailReason


@dataclass(slots=True)
class MuxCounts:
    """Counts of one connection since it began.

    Attributes:
        opened: streams that this side opened.
        accepted: streams of the other side that were accepted.
        refused: streams of the other side that were refused.
        ignored: frames for streams that do not exist, for example because they have ended.
        failed: failed halves of streams, by reason.
        sent_bytes, received_bytes: bytes of streams.
        stalls: times that a stream had bytes to send but no credit left.
        violation: violation of the protocol by the other side that ended the connection.
    """

    opened: int = 0
    accepted: int = 0
    refused: int = 0
    ignored: int = 0
    failed: Counter[FailReason] = field(default_factory=Counter)
    sent_bytes: int = 0
    received_bytes: int = 0
    stalls: int = 0
    violation: Violation | None = None

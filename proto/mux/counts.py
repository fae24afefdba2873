"""What a connection counts, for its owner and for operators."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from proto.mux.errors import Violation
from proto.mux.events import FailReason


@dataclass(slots=True)
class MuxCounts:
    """What one connection counted since it began.

    Attributes:
        opened: streams, by this side.
        accepted: streams of the other side.
        refused: streams of the other side.
        ignored: frames for streams that have ended.
        failed: halves of streams, by reason.
        sent_bytes, received_bytes: of streams.
        stalls: times that a stream had bytes to send and no credit left.
        violation: of the protocol by the other side, which ended the connection.
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

"""What a process that delivers to other relays records: each try, and what it gives up.

Of a message that is taken to a queue of this relay, since its twin has moved here, nothing is said:
its delivery is told by whoever delivers it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from google.protobuf.message import DecodeError

from proto.rmb.reasons import MessageReason
from proto.rmb.types_pb2 import Envelope
from relay.analytics.recording import journal
from relay.analytics.records import NO_LATENCY, REASON_CODE, Kind
from relay.analytics.uids import message_uid

if TYPE_CHECKING:
    from relay.analytics.journal import Journal
    from relay.federation.lane import Entry


class Ends(NamedTuple):
    """What rows of one message have in common."""

    uid: int
    source: int
    destination: int
    session: str
    size_bytes: int


class DrainerEvents:
    """Records events of the drainers of one process."""

    def __init__(self, journal: Journal) -> None:
        """
        Args:
            journal: of this process; started and closed with this.
        """
        self._journal = journal
        self._told: dict[str, float] = {}

    def start(self) -> None:
        """Begins."""
        self._journal.start()

    async def close(self) -> None:
        """Returns when all is written."""
        await self._journal.close()

    def take(self) -> dict[str, int]:
        """What was written and lost since the last call, by series.

        A process that drains has no heartbeat: it adds this to what all of them did together.
        """
        before, self._told = self._told, self._journal.figures()
        grown = {name: int(total - before.get(name, 0.0)) for name, total in self._told.items()}
        # A counter that is there from the beginning shows its first step, too.
        return {name: count for name, count in grown.items() if count or name not in before}

    def tried(
        self,
        entries: Sequence[Entry],
        relay: str,
        reasons: Sequence[MessageReason | None],
        took_s: float,
    ) -> None:
        """Messages were sent to another relay.

        Args:
            entries: the messages.
            relay: the other one.
            reasons: why it did not take each of them; None: it did.
            took_s: the request.
        """
        now_us, took_us = self._journal.now_us(), max(0, int(took_s * 1e6))
        for entry, reason in zip(entries, reasons, strict=True):
            ends = _ends(entry)
            if ends is not None:
                code = 0 if reason is None else REASON_CODE[reason]
                self._journal.put(Kind.FEDERATED_OUT, now_us, *ends, took_us, code, relay)

    def ended(self, entry: Entry, payload: bytes, reason: MessageReason) -> None:
        """A message is given up."""
        ends = _ends(entry, payload)
        if ends is not None:
            now_us, code = self._journal.now_us(), REASON_CODE[reason]
            self._journal.put(Kind.DROPPED, now_us, *ends, NO_LATENCY, code)


def of_this_process(config: Any) -> DrainerEvents:
    """As this installation is configured."""
    return DrainerEvents(journal(config, f"federation-{os.getpid()}"))


def _ends(entry: Entry, payload: bytes | None = None) -> Ends | None:
    """Read once for each message: it may be tried many times."""
    if entry.ends is None:
        try:
            envelope = Envelope.FromString(payload or entry.payload or b"")
        except DecodeError:
            return None
        source, target = envelope.source, envelope.destination.twin
        uid = message_uid(source.twin, target, envelope.WhichOneof("message"), envelope.uid)
        entry.ends = Ends(uid, source.twin, target, source.connection, entry.size_bytes)
    return entry.ends

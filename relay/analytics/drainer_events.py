"""Events of a process that delivers to partner relays: each attempt, and messages it gives up.

When a message is moved to a queue of this relay because its twin has moved here, this module
records nothing: the process that delivers the message records its delivery.
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
    """Values that all rows of one message share."""

    uid: int
    source: int
    destination: int
    session: str
    size_bytes: int


class DrainerEvents:
    """Recorder of the drainers of one process."""

    def __init__(self, journal: Journal) -> None:
        """
        Args:
            journal: journal of this process; started and closed with this object.
        """
        self._journal = journal
        self._told: dict[str, float] = {}

    def start(self) -> None:
        """Start the journal."""
        self._journal.start()

    async def close(self) -> None:
        """Close the journal, and wait until all events are written."""
        await self._journal.close()

    def take(self) -> dict[str, int]:
        """Return the events written and lost since the last call, by series.

        A process that drains has no heartbeat: it adds these figures to the sums of all such
        processes.
        """
        before, self._told = self._told, self._journal.figures()
        grown = {name: int(total - before.get(name, 0.0)) for name, total in self._told.items()}
        # Counters are reported once even at 0: only then does monitoring see their first increase.
        return {name: count for name, count in grown.items() if count or name not in before}

    def tried(
        self,
        entries: Sequence[Entry],
        relay: str,
        reasons: Sequence[MessageReason | None],
        took_s: float,
    ) -> None:
        """Record that messages were sent to a partner relay.

        Args:
            entries: messages that were sent.
            relay: domain of the partner relay.
            reasons: why it refused each message; None: it accepted the message.
            took_s: duration of the request, in seconds.
        """
        now_us, took_us = self._journal.now_us(), max(0, int(took_s * 1e6))
        for entry, reason in zip(entries, reasons, strict=True):
            ends = _ends(entry)
            if ends is not None:
                code = 0 if reason is None else REASON_CODE[reason]
                self._journal.put(Kind.FEDERATED_OUT, now_us, *ends, took_us, code, relay)

    def ended(self, entry: Entry, payload: bytes, reason: MessageReason) -> None:
        """Record that a message is given up."""
        ends = _ends(entry, payload)
        if ends is not None:
            now_us, code = self._journal.now_us(), REASON_CODE[reason]
            self._journal.put(Kind.DROPPED, now_us, *ends, NO_LATENCY, code)


def of_this_process(config: Any) -> DrainerEvents:
    """Return a recorder for this process, as this installation is configured."""
    return DrainerEvents(journal(config, f"federation-{os.getpid()}"))


def _ends(entry: Entry, payload: bytes | None = None) -> Ends | None:
    """Return the shared values of a message, and keep them: it may be attempted many times."""
    if entry.ends is None:
        try:
            envelope = Envelope.FromString(payload or entry.payload or b"")
        except DecodeError:
            return None
        source, target = envelope.source, envelope.destination.twin
        uid = message_uid(source.twin, target, envelope.WhichOneof("message"), envelope.uid)
        entry.ends = Ends(uid, source.twin, target, source.connection, entry.size_bytes)
    return entry.ends

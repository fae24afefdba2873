"""A lane: the messages of the outbox for one twin, in order.

A lane has one request in flight at a time, with its first message or its first few. So what one
connection sends to one session stays in order, however many relays and requests there are.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Final

from proto.federation.delivery import Candidate, Setbacks
from relay.federation.notes import Note, Notes

if TYPE_CHECKING:
    from relay.analytics.drainer_events import Ends
    from relay.federation.destination import Destination
    from relay.federation.partners import Partner
    from relay.federation.shard import Shard
    from relay.twins.source import TwinRecord


KEPT: Final = 8
"""Maximum number of messages that a waiting lane keeps as more than notes."""
RECALLED: Final = 64
"""Number of notes turned into messages at once: what a batch takes of one lane."""


class Entry:
    """One message of the outbox.

    Attributes:
        id: id in its stream.
        stored_at: unix time at which it was committed.
        deadline: unix time at which it expires.
        size_bytes: size of the envelope.
        origin: session key of its sender as text; empty if a relay made it.
        account: account that it is counted under. For a message that was a note, origin and account
            are known once it is read again.
        payload: the envelope; None while it is only in Redis.
        doubtful: whether an earlier attempt may have been accepted.
        tried: whether a failed attempt was recorded.
        ends: what its rows have in common, if events are recorded.
        over: whether it was settled; its place in the lane is skipped.
    """

    __slots__ = (
        "account",
        "deadline",
        "doubtful",
        "ends",
        "id",
        "origin",
        "over",
        "payload",
        "size_bytes",
        "stored_at",
        "tried",
    )

    def __init__(
        self,
        entry_id: bytes,
        stored_at: float,
        deadline: float,
        payload: bytes,
        origin: str,
        account: str,
        doubtful: bool,
    ) -> None:
        self.id = entry_id
        self.stored_at = stored_at
        self.deadline = deadline
        self.size_bytes = len(payload)
        self.payload: bytes | None = payload
        self.origin = origin
        self.account = account
        self.doubtful = doubtful
        self.tried = False
        self.ends: Ends | None = None
        self.over = False


def _note(entry: Entry) -> Note:
    return Note(entry.id, entry.deadline, entry.size_bytes, entry.doubtful)


def _recalled(note: Note) -> Entry:
    stored_at = int(note.id.partition(b"-")[0]) / 1000
    entry = Entry(note.id, stored_at, note.deadline, b"", "", "", note.doubtful)
    entry.size_bytes = note.size_bytes
    entry.payload = None
    return entry


class Stage(Enum):
    """What a lane is doing."""

    IDLE = "idle"  # nothing to do until `Shard` advances it
    WAITING = "waiting"  # until a time
    FETCHING = "fetching"  # reading the twin, the state of its relays, or payloads
    READY = "ready"  # in the queue of a destination
    SENDING = "sending"  # a request with its first messages is in flight


class Lane:
    """The lane of one twin.

    Attributes:
        entries: its first messages; if it is empty there are no notes either.
        notes: notes of all messages behind them.
        record: the twin, as of the last choice of a relay.
        destination: relay that accepted the last message.
        queue: relay whose queue the lane is in, or was in last.
        sending: messages of the request in flight.
        busy: relays that declined this twin's messages.
    """

    __slots__ = (
        "_timer",
        "busy",
        "destination",
        "entries",
        "notes",
        "queue",
        "record",
        "sending",
        "shard",
        "stage",
        "twin",
    )

    def __init__(self, shard: Shard, twin: int) -> None:
        self.shard = shard
        self.twin = twin
        self.entries: deque[Entry] = deque()
        self.notes = Notes()
        self.stage = Stage.IDLE
        self.record: TwinRecord | None = None
        self.destination: Destination | None = None
        self.queue: Destination | None = None
        self.sending: list[Entry] = []
        self.busy: dict[str, Setbacks] = {}
        self._timer: asyncio.TimerHandle | None = None

    def head(self) -> Entry | None:
        """Return the first message that is not settled, if any."""
        entries = self.entries
        while entries:
            if not entries[0].over:
                return entries[0]
            entries.popleft()
            if not entries:
                self.recall()
        return None

    def put_off(self, entry: Entry) -> None:
        """Add a message whose turn is far off, and whose envelope is not in memory."""
        if self.notes or len(self.entries) >= KEPT:
            self.notes.add(_note(entry))
        else:
            self.entries.append(entry)

    def fold(self) -> None:
        """Turn all but the first `KEPT` messages into notes, unless they hold more than a note."""
        entries, sending = self.entries, set(map(id, self.sending))
        folded: list[Note] = []
        while len(entries) > KEPT and not (entries[-1].tried or id(entries[-1]) in sending):
            entry = entries.pop()
            if not entry.over:
                folded.append(_note(entry))
        if folded:
            self.notes.put_first(reversed(folded))

    def recall(self, count: int = RECALLED) -> None:
        """Turn the first notes into messages."""
        self.entries.extend(map(_recalled, self.notes.take(count)))

    def expired_notes(self, now: float) -> list[Entry]:
        """Remove expired notes from the lane, and return their messages."""
        return list(map(_recalled, self.notes.expired(now)))

    def candidate(self, partner: Partner, now: float) -> Candidate:
        """Return a relay of the twin as a candidate for the next attempt."""
        retry_at, weight = partner.retry_at(), partner.setbacks.weight(now)
        busy = self.busy.get(partner.domain)
        if busy is not None:
            retry_at = max(retry_at, busy.retry_at)
            weight = max(weight, busy.weight(now))
        return Candidate(partner.domain, retry_at, weight)

    def wait(self, delay_s: float, then: Callable[[Lane], None]) -> None:
        """Call `then` with this lane after a delay."""
        self.wake()
        self.stage = Stage.WAITING
        self._timer = asyncio.get_running_loop().call_later(delay_s, then, self)

    def wake(self) -> None:
        """Cancel a wait without calling its function."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def not_now(
        self, relay: str, started: float, now: float, random: Callable[[], float], wait_s: float
    ) -> None:
        """Record that a relay that works declined this twin's first message for now."""
        busy = self.busy.get(relay)
        if busy is None:
            busy = self.busy[relay] = Setbacks()
        busy.failed(started, now, random, wait_s)

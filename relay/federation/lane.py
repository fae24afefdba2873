"""The messages of the outbox that go to one twin, in their order.

One request at a time is under way for a lane, with its first message or its first few, so what one
connection sends to one session stays in order however many relays and requests there are.
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
"""Messages of a lane that waits which are more than notes."""
RECALLED: Final = 64
"""Notes that become more at once: what a batch takes of one lane."""


class Entry:
    """One message of the outbox.

    Attributes:
        id: in its stream.
        stored_at: unix time it was committed.
        deadline: unix time it expires.
        size_bytes: of the envelope.
        origin: session key of its sender as text; empty where a relay made it.
        account: it is counted under. Of one that was a note both are known when it is read again.
        payload: the envelope; None while it waits in Redis only.
        doubtful: it may have been accepted in an earlier try.
        tried: a failed try of it was noted.
        ends: what its rows have in common, where events are recorded.
        over: it was settled; its place in the lane is skipped.
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
    """What a lane is about."""

    IDLE = "idle"  # nothing to do, or to be looked at by whoever adds something
    WAITING = "waiting"  # for a time
    FETCHING = "fetching"  # the twin, the state of its relays, or payloads
    READY = "ready"  # in the queue of a destination
    SENDING = "sending"  # a request with its first messages is under way


class Lane:
    """The lane of one twin.

    Attributes:
        entries: its first messages; where there are none there are no notes either.
        notes: of all behind them.
        record: the twin, as it was when a relay was chosen last.
        destination: the relay that took the last message.
        queue: the one it queues at, or did last.
        sending: the messages of the request under way.
        busy: relays that did not want this twin's messages.
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
        """The first message that is not over."""
        entries = self.entries
        while entries:
            if not entries[0].over:
                return entries[0]
            entries.popleft()
            if not entries:
                self.recall()
        return None

    def put_off(self, entry: Entry) -> None:
        """Adds a message whose turn is not soon, and which has no envelope."""
        if self.notes or len(self.entries) >= KEPT:
            self.notes.add(_note(entry))
        else:
            self.entries.append(entry)

    def fold(self) -> None:
        """Makes notes of all messages but the first, as far as they are nothing more."""
        entries, sending = self.entries, set(map(id, self.sending))
        folded: list[Note] = []
        while len(entries) > KEPT and not (entries[-1].tried or id(entries[-1]) in sending):
            entry = entries.pop()
            if not entry.over:
                folded.append(_note(entry))
        if folded:
            self.notes.put_first(reversed(folded))

    def recall(self, count: int = RECALLED) -> None:
        """Makes messages of the first notes."""
        self.entries.extend(map(_recalled, self.notes.take(count)))

    def expired_notes(self, now: float) -> list[Entry]:
        """The messages among the notes that expired; they are not in the lane any more."""
        return list(map(_recalled, self.notes.expired(now)))

    def candidate(self, partner: Partner, now: float) -> Candidate:
        """A relay of the twin, as one that may be tried next."""
        retry_at, weight = partner.retry_at(), partner.setbacks.weight(now)
        busy = self.busy.get(partner.domain)
        if busy is not None:
            retry_at = max(retry_at, busy.retry_at)
            weight = max(weight, busy.weight(now))
        return Candidate(partner.domain, retry_at, weight)

    def wait(self, delay_s: float, then: Callable[[Lane], None]) -> None:
        """Has something done later."""
        self.wake()
        self.stage = Stage.WAITING
        self._timer = asyncio.get_running_loop().call_later(delay_s, then, self)

    def wake(self) -> None:
        """Ends a wait without doing what it waited for."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def not_now(
        self, relay: str, started: float, now: float, random: Callable[[], float], wait_s: float
    ) -> None:
        """A relay that works did not want this twin's first message now."""
        busy = self.busy.get(relay)
        if busy is None:
            busy = self.busy[relay] = Setbacks()
        busy.failed(started, now, random, wait_s)

"""The one place where a worker tells what happens to messages and sessions.

Each accept, delivery, queueing, drop, open and close passes here with the session, the parsed
envelope and the reason, once. This recorder keeps nothing; one that does (traces of messages,
events for analytics) subclasses it and is handed to the worker (`Worker.record`), and the hot path
is not touched again. A worker asks only one that keeps something (`Worker.recording`), and then
about a whole batch, or all that one look at a socket found, in one call. One that does not follow
single messages (`follows`) is not asked about each step of each of them.
"""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING, Any, Final

from proto.rmb.reasons import SessionReason
from proto.rmb.types_pb2 import Envelope

if TYPE_CHECKING:
    from proto.federation.answers import Reason
    from relay.queues.batch import Batch, Origin
    from relay.queues.destination import Destination
    from relay.queues.entries import Removal
    from relay.queues.keys import SessionKey
    from relay.sessions.sender import Sender
    from relay.sessions.session import Session


TOLD_TRIMS: Final = 2000
"""Messages that a recorder is told of before one sweep removes them, unless it wants more."""


class _Everybody:
    """Has every twin in it."""

    def __contains__(self, twin: object) -> bool:
        return True


EVERYBODY: Final = _Everybody()


class Recorder:
    """Does nothing with what it is told. Calls come from the event loop and must not block.

    Attributes:
        follows: whether it is told when a message is `accepted`, `waits`, is `written` that does
            not come from a stream, is `acknowledged` and `removed`.
        told_trims: how many messages of one sweep it is told of.
    """

    follows: bool = False
    told_trims: int = TOLD_TRIMS

    def opened(self, session: Session) -> None:
        """A session is held from now on (its take-over is through)."""

    def closed(self, session: Session, reason: SessionReason) -> None:
        """A connection is over."""

    def followed(self, sender: SessionKey) -> Container[int]:
        """Which twins' messages from this sender matter to one that `follows`.

        That others for a session here are `accepted` it is not told: this is asked once for all
        that a socket brought.
        """
        return EVERYBODY

    def accepted(
        self,
        sender: Origin,
        destination: Destination,
        envelope: Envelope,
        size_bytes: int,
        batch: Batch,
    ) -> None:
        """A message of a session here, or of another relay, passed the checks and is on its way
        into a queue or the outbox: it is the last one of that kind in its batch."""

    def waits(
        self, sender: Sender, destination: Destination, payload: bytes, envelope: Envelope
    ) -> None:
        """A message of a session here waits until something is known of its destination, or behind
        one to the same that does: it is told of again when that has come."""

    def trimmed(self, entry_id: bytes, payload: bytes, reason: Reason) -> None:
        """A message leaves its queue because nobody fetched it in time, or for newer ones:
        `dropped` tells how many did."""

    def committed(self, batch: Batch, ids: list[Any] | None) -> None:
        """Redis has a batch: tells `queued` of each message in it.

        `ids` are those of its items and then other replies, in the place of an id an error where a
        message was not stored. None: they are unknown, and so is each message to this recorder.
        """
        for (destination, payload, sender), entry_id in zip(batch.items, ids or (), strict=False):
            if type(entry_id) is bytes:
                self.queued(destination, sender, Envelope.FromString(payload), entry_id)

    def queued(
        self, destination: Destination, sender: Origin | None, envelope: Envelope, entry_id: bytes
    ) -> None:
        """A message is committed to the stream of its destination."""

    def written(
        self,
        session: Session,
        payloads: list[bytes],
        ids: list[bytes],
        envelopes: list[Envelope] | None,
    ) -> None:
        """Messages were written to a session's socket: tells `delivered` of each.

        With their envelopes they come from its stream; without, they were in a batch that was told
        to be committed just before.
        """
        for number, (payload, entry_id) in enumerate(zip(payloads, ids, strict=True)):
            envelope = envelopes[number] if envelopes else Envelope.FromString(payload)
            self.delivered(session, envelope, len(payload), entry_id)

    def delivered(
        self, session: Session, envelope: Envelope, size_bytes: int, entry_id: bytes
    ) -> None:
        """A message was written to its session's socket."""

    def unwritten(self, session: Session, payloads: list[bytes]) -> None:
        """Messages of the batch that was just committed did not fit into the socket of their
        session, which is in memory mode: they are read from its stream later."""

    def acknowledged(self, session: Session, entries: list[Removal]) -> None:
        """The peer's TCP has the bytes of these messages."""

    def removed(self, session: Session, entries: list[Removal]) -> None:
        """Acknowledged messages are no longer in the stream."""

    def federated(
        self, sender: Sender | None, envelope: Envelope, entry_id: bytes | None, size_bytes: int
    ) -> None:
        """A message is committed to the outbox for another relay; the id may be unknown."""

    def declined(self, envelope: Envelope, reason: Reason, relay: str) -> None:
        """A message that another relay brought is not taken now, and may come again."""

    def limited(self, key: SessionKey, envelope: Envelope | None, reason: Reason) -> None:
        """A twin is over its limit with this message, which is refused."""

    def turned_away(self, envelope: Envelope | None, reason: Reason, relay: str) -> None:
        """A message that another relay brought is refused for good."""
        self.dropped(None, envelope, reason)

    def notified(self, envelope: Envelope, reason: Reason) -> None:
        """The sender of a request that ended undelivered is told so."""

    def dropped(self, sender: Sender | None, envelope: Envelope | None, reason: Reason) -> None:
        """A message ends undelivered. Without an envelope it did not parse, or was not looked at
        (old entries that left a full queue, or one nobody fetched in time: told once for each).
        One of another relay that is to come again has not ended."""


class Recorders(Recorder):
    """Tells two recorders what it is told; what a recorder tells itself it does not pass on."""

    def __init__(self, one: Recorder, other: Recorder) -> None:
        self.follows = one.follows or other.follows
        self.told_trims = max(one.told_trims, other.told_trims)
        self._both = one, other

    def opened(self, session: Session) -> None:
        for each in self._both:
            each.opened(session)

    def closed(self, session: Session, reason: SessionReason) -> None:
        for each in self._both:
            each.closed(session, reason)

    def followed(self, sender: SessionKey) -> Container[int]:
        one, other = self._both
        if one.follows and other.follows:
            return EVERYBODY
        return one.followed(sender) if one.follows else other.followed(sender)

    def accepted(
        self,
        sender: Origin,
        destination: Destination,
        envelope: Envelope,
        size_bytes: int,
        batch: Batch,
    ) -> None:
        for each in self._both:
            each.accepted(sender, destination, envelope, size_bytes, batch)

    def waits(
        self, sender: Sender, destination: Destination, payload: bytes, envelope: Envelope
    ) -> None:
        for each in self._both:
            each.waits(sender, destination, payload, envelope)

    def trimmed(self, entry_id: bytes, payload: bytes, reason: Reason) -> None:
        for each in self._both:
            each.trimmed(entry_id, payload, reason)

    def committed(self, batch: Batch, ids: list[Any] | None) -> None:
        for each in self._both:
            each.committed(batch, ids)

    def written(
        self,
        session: Session,
        payloads: list[bytes],
        ids: list[bytes],
        envelopes: list[Envelope] | None,
    ) -> None:
        for each in self._both:
            each.written(session, payloads, ids, envelopes)

    def unwritten(self, session: Session, payloads: list[bytes]) -> None:
        for each in self._both:
            each.unwritten(session, payloads)

    def acknowledged(self, session: Session, entries: list[Removal]) -> None:
        for each in self._both:
            each.acknowledged(session, entries)

    def removed(self, session: Session, entries: list[Removal]) -> None:
        for each in self._both:
            each.removed(session, entries)

    def federated(
        self, sender: Sender | None, envelope: Envelope, entry_id: bytes | None, size_bytes: int
    ) -> None:
        for each in self._both:
            each.federated(sender, envelope, entry_id, size_bytes)

    def declined(self, envelope: Envelope, reason: Reason, relay: str) -> None:
        for each in self._both:
            each.declined(envelope, reason, relay)

    def limited(self, key: SessionKey, envelope: Envelope | None, reason: Reason) -> None:
        for each in self._both:
            each.limited(key, envelope, reason)

    def turned_away(self, envelope: Envelope | None, reason: Reason, relay: str) -> None:
        for each in self._both:
            each.turned_away(envelope, reason, relay)

    def notified(self, envelope: Envelope, reason: Reason) -> None:
        for each in self._both:
            each.notified(envelope, reason)

    def dropped(self, sender: Sender | None, envelope: Envelope | None, reason: Reason) -> None:
        for each in self._both:
            each.dropped(sender, envelope, reason)

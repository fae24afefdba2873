"""The interface by which a worker reports what happens to messages and sessions.

Each accept, delivery, queueing, drop, open and close is reported here once, with the session, the
parsed envelope and the reason. This recorder keeps nothing. One that does (traces of messages,
events for analytics) subclasses it and is passed to the worker (`Worker.record`), without changes
to the hot path. A worker calls only a recorder that keeps something (`Worker.recording`), with one
call for a whole batch, or for everything that one look at a socket found. A recorder that does not
follow single messages (`follows`) is not called for each step of each of them.
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
"""Messages of one sweep that are reported to a recorder before removal, unless it wants more."""


class _Everybody:
    """A container of every twin."""

    def __contains__(self, twin: object) -> bool:
        return True


EVERYBODY: Final = _Everybody()


class Recorder:
    """Ignores everything. Calls come from the event loop and must not block.

    Attributes:
        follows: whether it is called when a message is `accepted`, `waits`, is `written` without
            coming from a stream, is `acknowledged` and `removed`.
        told_trims: maximum number of messages of one sweep that are reported to it.
    """

    follows: bool = False
    told_trims: int = TOLD_TRIMS

    def opened(self, session: Session) -> None:
        """Record that a session is held from now on (its take-over is complete)."""

    def closed(self, session: Session, reason: SessionReason) -> None:
        """Record that a connection has ended."""

    def followed(self, sender: SessionKey) -> Container[int]:
        """Return the twins whose messages from this sender matter to a recorder that `follows`.

        `accepted` is not called for other messages to sessions here. This method is called once for
        everything that a socket brought.
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
        """Record that a message passed the checks and is on its way into a queue or the outbox.

        It comes from a session here or from a partner relay, and is the last one of its kind (queue
        or outbox) in its batch.
        """

    def waits(
        self, sender: Sender, destination: Destination, payload: bytes, envelope: Envelope
    ) -> None:
        """Record that a message of a session here waits for a fact about its destination.

        It may also wait behind another one to the same destination. It is reported again when the
        fact is known.
        """

    def trimmed(self, entry_id: bytes, payload: bytes, reason: Reason) -> None:
        """Record that a message leaves its queue: it was not fetched in time, or makes room.

        `dropped` reports how many did.
        """

    def committed(self, batch: Batch, ids: list[Any] | None) -> None:
        """Record that Redis has a batch, by calling `queued` for each message in it.

        `ids` begins with the ids of its items, with an error in the place of an id if a message was
        not stored; other replies follow. None: the ids are unknown, and then this recorder ignores
        the batch.
        """
        for (destination, payload, sender), entry_id in zip(batch.items, ids or (), strict=False):
            if type(entry_id) is bytes:
                self.queued(destination, sender, Envelope.FromString(payload), entry_id)

    def queued(
        self, destination: Destination, sender: Origin | None, envelope: Envelope, entry_id: bytes
    ) -> None:
        """Record that a message is committed to the stream of its destination."""

    def written(
        self,
        session: Session,
        payloads: list[bytes],
        ids: list[bytes],
        envelopes: list[Envelope] | None,
    ) -> None:
        """Record messages written to a session's socket, by calling `delivered` for each.

        With `envelopes` they come from its stream. Without, they were in a batch for which
        `committed` was called just before.
        """
        for number, (payload, entry_id) in enumerate(zip(payloads, ids, strict=True)):
            envelope = envelopes[number] if envelopes else Envelope.FromString(payload)
            self.delivered(session, envelope, len(payload), entry_id)

    def delivered(
        self, session: Session, envelope: Envelope, size_bytes: int, entry_id: bytes
    ) -> None:
        """Record that a message was written to its session's socket."""

    def unwritten(self, session: Session, payloads: list[bytes]) -> None:
        """Record that messages of the batch just committed did not fit into their session's socket.

        The session is in memory mode; they are read from its stream later.
        """

    def acknowledged(self, session: Session, entries: list[Removal]) -> None:
        """Record that the peer's TCP has received the bytes of these messages."""

    def removed(self, session: Session, entries: list[Removal]) -> None:
        """Record that acknowledged messages are no longer in the stream."""

    def federated(
        self, sender: Sender | None, envelope: Envelope, entry_id: bytes | None, size_bytes: int
    ) -> None:
        """Record that a message is committed to the outbox; its id may be None."""

    def declined(self, envelope: Envelope, reason: Reason, relay: str) -> None:
        """Record that a message of a partner relay is refused for now, and may come again."""

    def limited(self, key: SessionKey, envelope: Envelope | None, reason: Reason) -> None:
        """Record that a message is refused because its twin is over a limit."""

    def turned_away(self, envelope: Envelope | None, reason: Reason, relay: str) -> None:
        """Record that a message of a partner relay is refused for good."""
        self.dropped(None, envelope, reason)

    def notified(self, envelope: Envelope, reason: Reason) -> None:
        """Record that the sender of a request that ended undelivered is notified."""

    def dropped(self, sender: Sender | None, envelope: Envelope | None, reason: Reason) -> None:
        """Record that a message ends undelivered.

        It has no envelope if it did not parse, or was not examined (old entries that left a full
        queue, or one that was not fetched in time: called once for each). A message of a partner
        relay that is to come again has not ended.
        """


class Recorders(Recorder):
    """Passes every call on to two recorders, except calls that a recorder makes itself."""

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

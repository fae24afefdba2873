"""The one place where a worker tells what happens to messages and sessions.

Each accept, delivery, queueing, drop, open and close passes here with the session, the parsed
envelope and the reason, once. The recorder of this release keeps nothing; one that does (events
for analytics, traces of one message) subclasses it and is handed to the worker, and the hot path
is not touched again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from proto.rmb.reasons import SessionReason

if TYPE_CHECKING:
    from proto.federation.answers import Reason
    from proto.rmb.types_pb2 import Envelope
    from relay.queues.batch import Origin
    from relay.queues.destination import Destination
    from relay.sessions.sender import Sender
    from relay.sessions.session import Session


class Recorder:
    """Does nothing with what it is told. Calls come from the event loop and must not block."""

    def opened(self, session: Session) -> None:
        """A session is held from now on (its take-over is through)."""

    def closed(self, session: Session, reason: SessionReason) -> None:
        """A connection is over."""

    def accepted(self, sender: Origin, envelope: Envelope, size_bytes: int) -> None:
        """A message of a session here, or of another relay, passed the checks and is on its way
        into a queue or the outbox."""

    def queued(
        self, destination: Destination, sender: Origin | None, envelope: Envelope, entry_id: bytes
    ) -> None:
        """A message is committed to the stream of its destination."""

    def delivered(
        self, session: Session, envelope: Envelope, size_bytes: int, entry_id: bytes
    ) -> None:
        """A message was written to its session's socket."""

    def federated(self, sender: Sender | None, envelope: Envelope) -> None:
        """A message is committed to the outbox for another relay."""

    def dropped(self, sender: Sender | None, envelope: Envelope | None, reason: Reason) -> None:
        """A message ends undelivered. Without an envelope it did not parse, or was not looked at
        (old entries that left a full queue, or one nobody fetched in time: told once for each).
        One of another relay that is to come again has not ended."""

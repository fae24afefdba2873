"""One message that another relay brings, from its bytes to its answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proto.federation.answers import REPEATED, Answer, InboundReason, Reason, refused
from proto.federation.inbound import examine
from proto.rmb.bounds import Bounds
from proto.rmb.challenge import challenge
from proto.rmb.outline import Outline, outline
from proto.rmb.reasons import MessageReason
from proto.rmb.tags import has_fail_fast
from proto.rmb.types_pb2 import Envelope
from relay.federation.inbound_body import Client
from relay.federation.inbound_memory import signed_mark, trusted_mark
from relay.federation.inbound_partners import Partner
from relay.queues import keys

if TYPE_CHECKING:
    from relay.sessions.meters import Meter


class Arrival:
    """One message of a partner relay, and what is known about it while it is decided.

    Attributes:
        payload: the serialized envelope.
        partner: the relay that brought it.
        client: the connection that gets the answer.
        answer: the decision; None before it.
        examined: whether `examine` has read the payload. Unless it refused the message, the
            attributes below are then known.
        destination: session key of the destination.
        key: session key of the sender; its twin is 0 for an error made by a relay.
        timestamp, expiration, signature: as in the envelope.
        fail_fast: whether the message must not wait in a queue.
        digest: hash that the source twin signed; not computed for a trusted partner.
        mark: what a repeat of the message is recognized by; also empty if it is stored without a
            mark.
        begun: whether its mark is among those under way, which it is while the message is decided.
        relays: relays of the source twin.
        meter, window: meter and window in which the message was counted.
    """

    __slots__ = (
        "_envelope",
        "_outline",
        "answer",
        "begun",
        "client",
        "destination",
        "digest",
        "examined",
        "expiration",
        "fail_fast",
        "key",
        "mark",
        "meter",
        "partner",
        "payload",
        "relays",
        "signature",
        "timestamp",
        "window",
    )

    def __init__(self, payload: bytes, partner: Partner, client: Client) -> None:
        self.payload = payload
        self.partner = partner
        self.client = client
        self.answer: Answer | None = None
        self.examined = False
        self.destination: keys.SessionKey = (0, None)
        self.key: keys.SessionKey = (0, None)
        self.timestamp = 0
        self.expiration = 0
        self.signature = b""
        self.fail_fast = False
        self.digest = b""
        self.mark = b""
        self.begun = False
        self.relays: tuple[str, ...] = ()
        self.meter: Meter | None = None
        self.window = 0
        self._outline: Outline | None = None
        self._envelope: Envelope | None = None

    @property
    def open(self) -> bool:
        """Whether the message is not decided yet."""
        return self.answer is None

    @property
    def comes_again(self) -> bool:
        """Whether the message was refused temporarily, so that the partner relay sends it again."""
        return self.answer is not None and self.answer.temporary

    @property
    def envelope(self) -> Envelope | None:
        """The parsed message; None if the bytes cannot be parsed."""
        if self._envelope is None and self._outline is not None:
            self._envelope = Envelope.FromString(self.payload)
        return self._envelope

    def examine(self, bounds: Bounds) -> None:
        """Parse the payload, and refuse a message that cannot be for this relay.

        Args:
            bounds: maximum sizes of the fields.
        """
        self.examined = True
        regular = outline(self.payload, bounds)
        if regular is not None:
            self._outline = regular
            self.destination = regular.destination
            self.key = regular.source
            self.timestamp = regular.timestamp
            self.expiration = regular.expiration
            self.signature = regular.signature
            if regular.tags:
                self.fail_fast = has_fail_fast(regular.tags.decode())
            return
        envelope, destination, source, reason = examine(self.payload, bounds)
        self._envelope = envelope
        if reason is not None:
            self.refuse(reason)
        elif envelope is not None and destination is not None:
            self.destination = destination
            sender = envelope.source
            self.key = (source, sender.connection if sender.HasField("connection") else None)
            self.timestamp = envelope.timestamp
            self.expiration = envelope.expiration
            self.signature = envelope.signature
            self.fail_fast = has_fail_fast(envelope.tags)

    def hash(self) -> None:
        """Compute the hash that the source twin signed."""
        if self._outline is not None:
            self.digest = self._outline.challenge()
        elif self._envelope is not None:
            self.digest = challenge(self._envelope)

    def note_mark(self) -> None:
        """Compute the mark that a repeat of the message is recognized by."""
        if self.partner.trusted:
            self.mark = trusted_mark(self.payload)
            return
        if not self.digest:
            self.hash()
        self.mark = signed_mark(self.key[0], self.destination[0], self.digest, self.signature)

    def refuse(self, reason: Reason, retry_after_s: int = 0) -> None:
        """Refuse the message; it is not stored."""
        self.answer = refused(reason, retry_after_s)

    @property
    def gone(self) -> bool:
        """Whether the client has disconnected, so that no answer can reach it."""
        return self.client.disconnected

    def not_stored(self) -> None:
        """Record that the message was not stored by this worker, and take it out of the counts.

        Either another worker has stored it meanwhile, or its client has disconnected.
        """
        if self.meter is not None:
            self.meter.uncount(len(self.payload), self.window)
        if self.gone:
            self.refuse(InboundReason.CLIENT_GONE)
        else:
            self.answer = REPEATED

    def refuse_stored(self, envelope: Envelope, reason: MessageReason) -> None:
        """Refuse the message because the group commit could not store it."""
        self.refuse(reason)

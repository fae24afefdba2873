"""One message on its way in from another relay, from its bytes to its answer."""

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
    """One message.

    Attributes:
        payload: its bytes.
        partner: who brought it.
        client: the connection that gets its answer.
        answer: once it is decided.
        examined: its bytes were looked at; what follows is known then, unless it is refused.
        destination: session key it is for.
        key: of its sender's session; its twin is 0 for an error made by a relay.
        timestamp, expiration, signature: as in the envelope.
        fail_fast: it is not to wait in a queue.
        digest: what its source twin signed, unless the partner is trusted.
        mark: what it is remembered by; empty too where it is stored without.
        begun: its mark is among those under way, as long as it is being decided.
        relays: of the source twin.
        meter, window: where and when it was counted.
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
        """Whether it is not decided yet."""
        return self.answer is None

    @property
    def comes_again(self) -> bool:
        """Whether it was refused for now only."""
        return self.answer is not None and self.answer.temporary

    @property
    def envelope(self) -> Envelope | None:
        """The parsed message; None if the bytes cannot be parsed."""
        if self._envelope is None and self._outline is not None:
            self._envelope = Envelope.FromString(self.payload)
        return self._envelope

    def examine(self, bounds: Bounds) -> None:
        """Look at the bytes; refuses what may not be for us.

        Args:
            bounds: sizes the fields may have.
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
        """Hash what its source twin signed."""
        if self._outline is not None:
            self.digest = self._outline.challenge()
        elif self._envelope is not None:
            self.digest = challenge(self._envelope)

    def note_mark(self) -> None:
        """Work out what it is remembered by."""
        if self.partner.trusted:
            self.mark = trusted_mark(self.payload)
            return
        if not self.digest:
            self.hash()
        self.mark = signed_mark(self.key[0], self.destination[0], self.digest, self.signature)

    def refuse(self, reason: Reason, retry_after_s: int = 0) -> None:
        """Ends it without being stored."""
        self.answer = refused(reason, retry_after_s)

    @property
    def gone(self) -> bool:
        """Whether nobody waits for its answer any more."""
        return self.client.disconnected

    def not_stored(self) -> None:
        """Another worker has stored it meanwhile, or its client went: it counts for nothing."""
        if self.meter is not None:
            self.meter.uncount(len(self.payload), self.window)
        if self.gone:
            self.refuse(InboundReason.CLIENT_GONE)
        else:
            self.answer = REPEATED

    def refuse_stored(self, envelope: Envelope, reason: MessageReason) -> None:
        """The group commit could not store it."""
        self.refuse(reason)

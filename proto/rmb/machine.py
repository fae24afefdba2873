"""Both sides of the protocol, without I/O: one session as its relay sees it, and a peer.

The owner passes the bytes of binary websocket messages to either side (`receive_data`), then drains
two queues: messages to send (`data_to_send`) and events (`next_event`). Time is passed to every
call in Unix seconds. A peer has a timer (`next_timer`, `handle_timer`) for requests without an
answer. Randomness and twins come from functions passed to the constructor.

    owner of a peer         PeerSide          RelaySide         owner of the session
    send_request()   -->    encrypt, sign --> examine, limit,
                                              route        -->  EnvelopeAccepted
    RequestReceived  <--    verify, decrypt  <--------- bytes, forwarded unchanged

A relay under load calls `inbound.examiner` and `routing.route` itself, because its answers must
wait until earlier messages are committed. `RelaySide` runs the same steps in the same order, but
without waiting.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from typing import Final

from proto.identity.agreement import EncryptionKey
from proto.identity.signing import SigningKey
from proto.limits.window import Excess
from proto.rmb import events, notices, opening, sealing, stamp, tags
from proto.rmb import types_pb2 as pb
from proto.rmb.address import Address, SessionKey, from_message
from proto.rmb.bounds import DEFAULT_BOUNDS, MAX_PENDING_REQUESTS, Bounds
from proto.rmb.errors import (
    BoundError,
    EnvelopeError,
    NotBinaryError,
    NotEnvelopeError,
    UnknownTwinError,
)
from proto.rmb.inbound import examiner
from proto.rmb.reasons import MessageReason, SessionReason
from proto.rmb.routing import Facts, Step, route
from proto.rmb.sealing import PeerTwin, Sealer

_EXCESS_REASONS: Final = {
    Excess.COUNT: MessageReason.LIMIT_COUNT,
    Excess.SIZE: MessageReason.LIMIT_SIZE,
}


class RelaySide:
    """One session of a relay: examines the client's messages, and answers those that it can.

    Args:
        origin: the session.
        domains: names under which twins list this relay.
        facts: function that returns what is known of a destination; fail-fast is filled in here.
        admit: function that counts a message by its size and time, and returns which part of the
            twin's limit it exceeds.
        bounds: maximum sizes of the fields.
    """

    def __init__(
        self,
        origin: SessionKey,
        domains: frozenset[str],
        facts: Callable[[SessionKey], Facts],
        admit: Callable[[int, float], Excess | None] | None = None,
        bounds: Bounds = DEFAULT_BOUNDS,
    ) -> None:
        self.origin = origin
        self._domains = domains
        self._facts = facts
        self._admit = admit
        self._examine = examiner(origin, bounds)
        self._failed = False  # after fatal input, further input is ignored
        self._events: deque[events.RelayEvent] = deque()
        self._output: list[bytes] = []

    def receive_data(self, data: bytes, now: float) -> None:
        """Process one binary message from the client."""
        if self._failed:
            return
        envelope, destination, reason, detail = self._examine(data)
        if reason is MessageReason.UNPARSABLE:
            self._events.append(events.EnvelopeRefused(reason, None, len(data)))
            self._fail(SessionReason.UNPARSABLE)
            return
        # For a parsed message the limit comes before every other check: a message that is refused
        # for another reason counts too.
        excess = self._admit(len(data), now) if self._admit and data else None
        if excess is not None:
            reason, detail = _EXCESS_REASONS[excess], None
        if reason is not None:
            self._refuse(envelope, reason, detail, len(data), now)
            return
        assert envelope is not None  # only refused messages have none
        if destination is None:
            self._output.append(notices.pong(envelope))
            self._events.append(events.PingAnswered(envelope.uid))
        else:
            self._route(envelope, destination, data, now)

    def receive_text(self) -> None:
        """Record a text message, which ends the session."""
        if not self._failed:
            self._events.append(events.EnvelopeRefused(MessageReason.TEXT_FRAME, None, 0))
            self._fail(SessionReason.TEXT_FRAME)

    def deliver(self, data: bytes) -> None:
        """Send a message for this session to its client."""
        self._output.append(data)

    def data_to_send(self) -> list[bytes]:
        """Return the binary messages to send, in order."""
        output, self._output = self._output, []
        return output

    def next_event(self) -> events.RelayEvent | None:
        """Return the next event, or None."""
        return self._events.popleft() if self._events else None

    def _route(
        self, envelope: pb.Envelope, destination: SessionKey, data: bytes, now: float
    ) -> None:
        fail_fast = tags.has_fail_fast(envelope.tags)
        decision = route(self._facts(destination)._replace(fail_fast=fail_fast), self._domains)
        if decision.step is Step.REFUSE and decision.reason is not None:
            self._refuse(envelope, decision.reason, None, len(data), now)
        else:
            self._events.append(events.EnvelopeAccepted(envelope, data, destination, decision.step))

    def _refuse(
        self,
        envelope: pb.Envelope | None,
        reason: MessageReason,
        detail: str | None,
        size_bytes: int,
        now: float,
    ) -> None:
        self._events.append(events.EnvelopeRefused(reason, envelope, size_bytes))
        if envelope is None:
            return
        notice = notices.refusal(envelope, reason, int(now), self.origin, detail)
        if notice is not None:
            self._output.append(notice)

    def _fail(self, reason: SessionReason) -> None:
        self._failed = True
        self._events.append(events.SessionFailed(reason))


class _Pending:
    """A request that may still be answered."""

    __slots__ = ("answers", "deadline")

    def __init__(self) -> None:
        self.deadline = 0  # Unix second from which on answers are not accepted
        self.answers = 0


class PeerSide:
    """A twin's side: signs and encrypts outgoing messages, and checks and decrypts incoming ones.

    Args:
        own: session that the peer is connected as.
        key: signing key of the twin.
        encryption: encryption key of the twin; None if it does not encrypt and cannot decrypt.
        look_up: function that returns a twin, or None if there is no such twin. An owner whose
            look-ups wait fetches the source of a message before it passes the message on.
        random: function that returns a number of random bytes.
    """

    def __init__(
        self,
        own: SessionKey,
        key: SigningKey,
        encryption: EncryptionKey | None,
        look_up: Callable[[int], PeerTwin | None],
        random: Callable[[int], bytes],
    ) -> None:
        self.own = Address(*own)
        self._look_up = look_up
        self._random = random
        self._sealer = Sealer(own, key, encryption, random)
        self._pending: dict[str, _Pending] = {}
        # Deadlines and uids; a deadline that was extended since is still in here and is ignored.
        self._timers: list[tuple[int, str]] = []
        self._events: deque[events.PeerEvent] = deque()
        self._output: list[bytes] = []

    # Sending.

    def send_request(
        self,
        destination: SessionKey,
        command: str,
        payload: bytes,
        now: int,
        *,
        expiration_s: int = 0,
        tags: str | None = None,
        schema: str | None = None,
        uid: str | None = None,
    ) -> str:
        """Send a request to a twin; return the uid that its answers have.

        Args:
            destination: session that the request goes to.
            command: command of the request.
            payload: encrypted if the twin has a public key.
            now: Unix seconds.
            expiration_s: seconds to wait for an answer; 0 for the default.
            tags: `fail-fast` requests an error if the destination is offline.
            schema: content type of the payload.
            uid: uid of a request to several destinations; otherwise a new one is generated.

        Raises:
            UnknownTwinError: there is no such twin.
            AgreementError: the twin's public key is invalid.
            BoundError: too many requests are pending.
        """
        uid = uid or sealing.new_uid(self._random)
        pending = self._pending.get(uid)
        if pending is None and len(self._pending) >= MAX_PENDING_REQUESTS:
            size = len(self._pending) + 1
            raise BoundError("pending requests", size, MAX_PENDING_REQUESTS, "entries")
        envelope = self._sealer.new(uid, destination, schema)
        envelope.request.command = command
        if tags is not None:
            envelope.tags = tags
        expiration_s = stamp.request_expiration(expiration_s)
        self._send(envelope, payload, now, expiration_s)
        deadline = now + expiration_s
        if pending is None:
            pending = self._pending[uid] = _Pending()
        if deadline > pending.deadline:
            pending.deadline = deadline
            heapq.heappush(self._timers, (deadline, uid))
        return uid

    def send_response(
        self,
        request: events.RequestReceived,
        payload: bytes,
        now: int,
        schema: str | None = None,
    ) -> None:
        """Answer a request.

        Raises:
            UnknownTwinError: the requesting twin no longer exists.
        """
        envelope = self._sealer.new(request.uid, request.source, schema)
        envelope.response.SetInParent()
        self._send(envelope, payload, now, stamp.response_expiration())

    def send_error(
        self,
        request: events.RequestReceived,
        code: int,
        message: str,
        now: int,
        payload: bytes | None = None,
    ) -> None:
        """Answer a request with an error.

        Raises:
            UnknownTwinError: the requesting twin no longer exists.
        """
        envelope = self._sealer.new(request.uid, request.source)
        envelope.error.code = code
        envelope.error.message = message
        self._send(envelope, payload, now, stamp.response_expiration())

    def send_ping(self, now: int) -> str:
        """Send a ping to the relay; return its uid."""
        uid, message = self._sealer.ping(now)
        self._output.append(message)
        return uid

    # Receiving.

    def receive_data(self, data: bytes, now: int) -> None:
        """Process one binary message from the relay."""
        try:
            envelope = opening.parse(data)
        except NotEnvelopeError as error:
            self._events.append(events.EnvelopeRejected(error, ""))
            return
        try:
            self._accept(envelope, now)
        except EnvelopeError as error:
            self._events.append(events.EnvelopeRejected(error, envelope.uid))
            asker = self._look_up(envelope.source.twin)
            answer = opening.rejection(envelope, error, asker, self._sealer, now)
            if answer is not None:
                self._output.append(answer)

    def receive_text(self) -> None:
        """Record a text message, which no relay should send."""
        self._events.append(events.EnvelopeRejected(NotBinaryError(), ""))

    def data_to_send(self) -> list[bytes]:
        """Return the binary messages to send, in order."""
        output, self._output = self._output, []
        return output

    def next_event(self) -> events.PeerEvent | None:
        """Return the next event, or None."""
        return self._events.popleft() if self._events else None

    def next_timer(self) -> int | None:
        """Return when to call `handle_timer`, in Unix seconds; None if no request is pending."""
        return self._timers[0][0] if self._timers else None

    def handle_timer(self, now: int) -> None:
        """Expire the pending requests whose deadline has passed."""
        while self._timers and self._timers[0][0] <= now:
            _, uid = heapq.heappop(self._timers)
            pending = self._pending.get(uid)
            if pending is not None and pending.deadline <= now:
                del self._pending[uid]
                self._events.append(events.RequestExpired(uid, pending.answers))

    # Checks of an incoming envelope, in the order of rmb-peer 1.5.

    def _accept(self, envelope: pb.Envelope, now: int) -> None:
        opening.check_expiry(envelope, now)
        if opening.is_from_relay(envelope):
            self._accept_from_relay(envelope, now)
            return
        kind = envelope.WhichOneof("message")
        source = from_message(envelope.source)
        twin = self._look_up(source.twin) if source.twin else None
        payload = opening.open_envelope(envelope, twin, self._sealer, now)
        schema = envelope.schema if envelope.HasField("schema") else None
        uid = envelope.uid
        if kind == "request":
            deadline = stamp.deadline(envelope.timestamp, envelope.expiration)
            tags = envelope.tags if envelope.HasField("tags") else None
            self._events.append(
                events.RequestReceived(
                    uid, source, envelope.request.command, payload, schema, tags, deadline
                )
            )
            return
        pending = self._pending.get(uid)
        if kind not in ("response", "error") or pending is None or pending.deadline <= now:
            self._events.append(events.EnvelopeUnmatched(uid, source))
            return
        pending.answers += 1
        if kind == "response":
            self._events.append(events.ResponseReceived(uid, source, payload, schema))
        else:
            code, message = envelope.error.code, envelope.error.message
            self._events.append(events.ErrorReceived(uid, source, code, message, payload))

    def _accept_from_relay(self, envelope: pb.Envelope, now: int) -> None:
        uid = envelope.uid
        if envelope.HasField("pong"):
            self._events.append(events.PongReceived(uid))
            return
        pending = self._pending.get(uid)
        if pending is None or pending.deadline <= now:
            self._events.append(events.EnvelopeUnmatched(uid, from_message(envelope.source)))
            return
        pending.answers += 1
        error = envelope.error
        self._events.append(
            events.ErrorReceived(uid, None, error.code, error.message, envelope.plain)
        )

    # Creation of an outgoing envelope.

    def _send(
        self, envelope: pb.Envelope, payload: bytes | None, now: int, expiration_s: int
    ) -> None:
        receiver = self._look_up(envelope.destination.twin)
        if receiver is None:
            raise UnknownTwinError(envelope.destination.twin)
        self._output.append(self._sealer.seal(envelope, payload, receiver, now, expiration_s))

"""Processing of received messages, from bytes to verified and decrypted requests and answers.

on_message --> `peer.inbox`
  parse --> made by a relay: pong, or error about a request of ours
        --> sender's twin in memory, else looked up (the messages of that twin wait, in order)
        --> expiry, signature, payload; a request that fails gets the error as its answer
        --> a repeat is dropped
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from typing import Protocol

from peer.client.bodies import Reply
from peer.client.bounds import AGAIN_S, MAX_ASKED_AGAIN
from peer.client.calls import Outcome, Waiting
from peer.errors import RelayError, RemoteError, UnverifiedError
from peer.inbox import Inbox
from peer.links import Links
from peer.modules.api import Request
from peer.senders import Senders
from peer.twins import Twin, TwinCache
from proto.rmb import opening, stamp
from proto.rmb import types_pb2 as pb
from proto.rmb.address import Address, from_message
from proto.rmb.errors import (
    CipherError,
    EnvelopeError,
    NoPublicKeyError,
    NotEnvelopeError,
    SignatureError,
)
from proto.rmb.repeats import Repeats
from proto.rmb.sealing import Sealer

logger = logging.getLogger(__name__)

_STALE_KEYS = (SignatureError, NoPublicKeyError, CipherError)
"""Errors that occur if a twin has changed its keys."""


class Owner(Protocol):
    """Receiver of the processed messages."""

    @property
    def busy(self) -> bool:
        """Whether no more messages should be processed for now."""

    def waiting_for(self, uid: str) -> Waiting | None:
        """Return the caller that waits for answers with this uid, if any."""

    def requested(self, request: Request) -> None:
        """Process a request."""

    def repeated(self, source: Address, uid: str) -> None:
        """Process the repeat of a request."""

    def answered(self, uid: str, waiting: Waiting, source: Address | None, found: Outcome) -> None:
        """Process an answer for a waiting caller; without a source a relay made it."""

    def ponged(self, uid: str) -> None:
        """Process a pong."""

    def reject(self, answer: bytes, deadline: int) -> None:
        """Send the answer to a request that cannot be used."""


class Receiver:
    """Processes received messages.

    Args:
        own: twin and session to which messages must be addressed.
        twins: cache of the senders.
        sealer: decrypts payloads, and signs rejections.
        owner: gets the processed messages.

    Attributes:
        links: links, not read while too many messages wait; set by the owner.
        counters: numbers of messages by outcome.
    """

    def __init__(self, own: Address, twins: TwinCache, sealer: Sealer, owner: Owner) -> None:
        self.links: Links | None = None
        self.counters: Counter[str] = Counter()
        self._own = own
        self._twins = twins
        self._sealer = sealer
        self._owner = owner
        self._repeats = Repeats()
        self._begun = False
        self._inbox = Inbox(self._read, self._busy, self._flooded)
        self._senders = Senders(twins, self._found, self._dropped, self.go_on)
        self._asked_again: dict[int, float] = {}

    def begin(self) -> None:
        """Process messages from the next turn of the event loop on."""
        self._begun = True
        self._inbox.resume()

    def on_message(self, data: bytes) -> None:
        """Add a binary message."""
        self._inbox.receive(data)

    def on_text(self) -> None:
        """Count a message that is not binary."""
        self.counters["not binary"] += 1

    def go_on(self) -> None:
        """Continue when the owner is no longer busy, or fewer senders are looked up."""
        self._inbox.resume()

    async def worked(self) -> None:
        """Wait until all received messages are processed, or have to wait."""
        await self._inbox.worked()
        while look_ups := self._senders.look_ups:
            await asyncio.wait(look_ups)
            await self._inbox.worked()

    async def aclose(self) -> None:
        """Discard unprocessed messages."""
        self._inbox.clear()
        await self._senders.aclose()

    def _busy(self) -> bool:
        return not self._begun or self._owner.busy or self._senders.full

    def _flooded(self, flooded: bool) -> None:
        if self.links is None:
            return
        if flooded:
            self.links.pause()
        else:
            self.links.resume()

    def _read(self, data: bytes) -> None:
        try:
            envelope = opening.parse(data)
        except NotEnvelopeError:
            self.counters["unparsable"] += 1
            return
        sender = envelope.source.twin
        if not sender and opening.is_from_relay(envelope):
            self._from_relay(envelope)
            return
        if from_message(envelope.destination) != self._own:
            # For another twin, or another session of this one: a relay must not bring it here.
            self.counters["misdirected"] += 1
            return
        twin = self._twins.peek(sender)
        if sender and (twin is None or sender in self._senders):
            self._senders.add(envelope, len(data))
        else:
            self._open(envelope, twin, fresh=not sender)

    def _from_relay(self, envelope: pb.Envelope) -> None:
        uid = envelope.uid
        if envelope.HasField("pong"):
            self._owner.ponged(uid)
            return
        text = envelope.error.message
        waiting = self._owner.waiting_for(uid)
        if waiting is None:
            self.counters["refused by relay"] += 1
            logger.warning("a relay did not deliver message %s: %s", uid, text)
        else:
            self._owner.answered(uid, waiting, None, RelayError(text))

    # The sender's twin.

    @property
    def waiting(self) -> int:
        """Number of messages whose sender is being looked up."""
        return len(self._senders)

    def _found(self, envelope: pb.Envelope, twin: Twin | None) -> None:
        self._open(envelope, twin, fresh=True)

    def _dropped(self, envelope: pb.Envelope) -> None:
        self.counters["sender not looked up"] += 1

    def _may_ask_again(self, sender: int) -> bool:
        now = time.monotonic()
        if self._asked_again.get(sender, float("-inf")) + AGAIN_S > now:
            return False
        if len(self._asked_again) >= MAX_ASKED_AGAIN:
            self._asked_again.clear()
        self._asked_again[sender] = now
        return True

    # The envelope.

    def _open(self, envelope: pb.Envelope, twin: Twin | None, *, fresh: bool) -> None:
        kind = envelope.WhichOneof("message") or ""
        uid = envelope.uid
        waiting = None
        if kind != "request":
            waiting = self._owner.waiting_for(uid) if kind in _ANSWERS else None
            if waiting is None:
                self.counters["unmatched"] += 1
                return
        now = int(time.time())
        try:
            payload = opening.open_envelope(envelope, twin, self._sealer, now)
        except EnvelopeError as error:
            sender = envelope.source.twin
            if isinstance(error, _STALE_KEYS) and not fresh and self._may_ask_again(sender):
                self._twins.forget(sender)
                self._senders.add(envelope, envelope.ByteSize())
            else:
                self._refuse(envelope, error, twin, waiting, now)
            return
        source = from_message(envelope.source)
        deadline = stamp.deadline(envelope.timestamp, envelope.expiration)
        if self._repeats.seen(envelope.signature, deadline, now):
            self.counters["repeated"] += 1
            if waiting is None:
                self._owner.repeated(source, uid)
        elif waiting is None:
            self.counters["requests"] += 1
            schema = envelope.schema or None
            tags = envelope.tags or None
            command = envelope.request.command
            self._owner.requested(Request(uid, source, command, payload, schema, tags, deadline))
        elif source.twin not in waiting.twins:
            text = f"an answer came from twin {source}, which was not asked"
            self._owner.answered(uid, waiting, source, UnverifiedError(text))
        elif kind == "error":
            failure = RemoteError(envelope.error.code, envelope.error.message, source)
            self._owner.answered(uid, waiting, source, failure)
        else:
            reply = Reply(payload, envelope.schema or None, source)
            self._owner.answered(uid, waiting, source, reply)

    def _refuse(
        self,
        envelope: pb.Envelope,
        error: EnvelopeError,
        twin: Twin | None,
        waiting: Waiting | None,
        now: int,
    ) -> None:
        self.counters[f"refused {error.code}"] += 1
        if waiting is not None:
            source = from_message(envelope.source)
            found = UnverifiedError(f"the answer of twin {source} can't be used: {error}")
            self._owner.answered(envelope.uid, waiting, source, found)
            return
        answer = opening.rejection(envelope, error, twin, self._sealer, now)
        if answer is not None:
            self._owner.reject(answer, now + stamp.request_expiration(envelope.expiration))


_ANSWERS = ("response", "error")

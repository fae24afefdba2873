"""Messages that end other than by delivery to another relay.

A message that is given up becomes a dead letter, and the sender of a request is notified of the
reason. A message whose twin has moved to this relay meanwhile goes into the queue of its session
here. Both need the envelope, which may have to be read again: a few are read at a time, however
many expire at one moment.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from google.protobuf.message import DecodeError

from proto.rmb import notices
from proto.rmb.address import from_message
from proto.rmb.errors import AddressError, BoundError
from proto.rmb.reasons import MessageReason
from proto.rmb.types_pb2 import Envelope
from relay.federation.lane import Entry
from relay.federation.lease import Lease
from relay.federation.window import Window, read_again
from relay.queues import keys

if TYPE_CHECKING:
    from relay.federation.sender import Sender

READING: Final = 64
"""Maximum number of messages that are read again at a time."""
AGAIN_S: Final = 1.0
"""Seconds until the next attempt after Redis did not answer."""


class Endings:
    """Ends the messages of one shard that are not delivered to another relay."""

    def __init__(self, sender: Sender, shard: int, window: Window, lease: Lease) -> None:
        self._sender = sender
        self._shard = shard
        self._window = window
        self._lease = lease
        self._waiting: deque[tuple[Entry, MessageReason | None]] = deque()
        self._reading = 0
        self._pausing = False  # after Redis did not answer

    def end(self, entry: Entry, reason: MessageReason | None) -> None:
        """Give a message up; without a reason, deliver it to a session of this relay."""
        entry.over = True
        self._waiting.append((entry, reason))
        self._go_on()

    def _go_on(self) -> None:
        while self._waiting and self._reading < READING and not self._pausing:
            entry, reason = self._waiting.popleft()
            if entry.payload is not None:
                self._end(entry, reason, entry.payload)
                continue
            self._reading += 1
            self._sender.pipe.submit(self._window.range(entry), partial(self._read, entry, reason))

    def _again(self) -> None:
        self._pausing = False
        self._go_on()

    def _read(self, entry: Entry, reason: MessageReason | None, reply: Any) -> None:
        self._reading -= 1
        if isinstance(reply, Exception):
            self._waiting.append((entry, reason))
            if not self._pausing:
                self._pausing = True
                self._sender.loop.call_later(AGAIN_S, self._again)
            return
        payload = read_again(entry, reply)
        if payload is None:
            self._window.gone(entry)  # removed from the outbox meanwhile
        else:
            self._end(entry, reason, payload)
        self._go_on()

    def _end(self, entry: Entry, reason: MessageReason | None, payload: bytes) -> None:
        if not self._lease.held:
            return  # the successor decides about it
        notice, deliver_to = None, ""
        try:
            envelope = Envelope.FromString(payload)
            if reason is None:
                deliver_to = keys.key_text(from_message(envelope.destination))
            elif entry.origin:
                asker = keys.parse_key(entry.origin)
                notice = notices.refusal(envelope, reason, int(self._sender.clock()), asker)
        except (DecodeError, AddressError, BoundError):
            reason = reason or MessageReason.UNPARSABLE
        if reason is not None:
            self._sender.tally.dropped(reason)
            if self._sender.events is not None:
                self._sender.events.ended(entry, payload, reason)
        if self._sender.trace.on:
            self._sender.trace.ended(entry, payload, reason, notice is not None)
        self._window.gone(entry)
        why = reason.value if reason is not None else ""
        self._sender.settler.finish(self._shard, entry, why, notice, deliver_to)

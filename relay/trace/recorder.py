"""Records trace events of a relay worker's messages.

It is the worker's recorder while there are orders, and is not called at all otherwise. A message is
checked when it is accepted and when it is read from a stream. In between it is identified by its
place in its batch, and then by the id of its entry, so that the batches, writes and
acknowledgements of all other messages cost one look-up in an empty dictionary each.
"""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING, Any

from google.protobuf.message import DecodeError

from proto.federation.answers import Reason
from proto.rmb.address import SessionKey, from_message
from proto.rmb.reasons import MessageReason
from proto.rmb.types_pb2 import Envelope
from relay.federation.arrival import Arrival
from relay.sessions.recorder import EVERYBODY, Recorder
from relay.trace.bounds import MAX_OPEN
from relay.trace.events import Stage
from relay.trace.tracer import Message, Tracer

if TYPE_CHECKING:
    from relay.queues.batch import Batch, Origin
    from relay.queues.destination import Destination
    from relay.queues.entries import Removal
    from relay.sessions.sender import Sender
    from relay.sessions.session import Session
    from relay.sessions.worker import Worker

FORGOTTEN_BATCHES = 64
"""Number of batches at once from which batches that Redis refused are searched and dropped."""


class TraceRecorder(Recorder):
    """Recorder of what happens to messages that orders follow."""

    follows = True

    def __init__(self, worker: Worker, tracer: Tracer) -> None:
        self._worker = worker
        self._tracer = tracer
        self._batches: dict[Batch, list[tuple[int, Message]]] = {}
        # Messages that are written and not removed yet, by session and entry.
        self._open: dict[str, dict[bytes, Message]] = {}
        self._open_count = 0

    def clear(self) -> None:
        """Drop all state, as no order is in force any more."""
        self._batches.clear()
        self._open.clear()
        self._open_count = 0

    # --- incoming messages --------------------------------------------------------------------

    def waits(
        self, sender: Sender, destination: Destination, payload: bytes, envelope: Envelope
    ) -> None:
        if not self._tracer.concerns(sender.key[0], destination.key[0], envelope):
            return
        message = self._tracer.message(sender.key, destination.key, envelope, len(payload))
        if message is not None:
            self._tracer.note(message, Stage.WAITS)

    def followed(self, sender: SessionKey) -> Container[int]:
        tracer = self._tracer
        return EVERYBODY if tracer.uids or sender[0] in tracer.twins else tracer.twins

    def accepted(
        self,
        sender: Origin,
        destination: Destination,
        envelope: Envelope,
        size_bytes: int,
        batch: Batch,
    ) -> None:
        tracer = self._tracer
        if not tracer.concerns(sender.key[0], destination.key[0], envelope):
            return
        message = tracer.message(sender.key, destination.key, envelope, size_bytes)
        if message is None:
            return
        relay = sender.partner.domain if isinstance(sender, Arrival) else ""
        tracer.note(message, Stage.ACCEPTED, relay=relay)
        items = batch.items
        if not items or items[-1][0] is not destination or items[-1][2] is not sender:
            return  # it goes into the outbox, where `federated` checks it again
        if len(self._batches) >= FORGOTTEN_BATCHES:
            self._batches = {each: of for each, of in self._batches.items() if not each.done}
        self._batches.setdefault(batch, []).append((len(items) - 1, message))

    def committed(self, batch: Batch, ids: list[Any] | None) -> None:
        followed = self._batches.pop(batch, None)
        if followed is None:
            return
        note, commit = self._tracer.note, self._worker.commit
        number, ms = commit.applied_number, commit.last_commit_s * 1000
        for index, message in followed:
            entry_id = ids[index] if ids is not None else b""
            if type(entry_id) is not bytes:
                continue  # the worker refuses this message
            note(message, Stage.COMMITTED, entry=entry_id.decode(), batch=number, ms=ms)
            session = batch.items[index][0].session
            if session is None:
                note(message, Stage.QUEUED, entry=entry_id.decode(), reason="not_connected_here")
            elif not entry_id or not session.memory_mode:
                note(message, Stage.QUEUED, entry=entry_id.decode(), reason="catching_up")
            else:
                self._keep(session, entry_id, message)

    def federated(
        self, sender: Sender | None, envelope: Envelope, entry_id: bytes | None, size_bytes: int
    ) -> None:
        source = from_message(envelope.source) if sender is None else sender.key
        message = self._found(source, from_message(envelope.destination), envelope)
        if message is not None:
            commit = self._worker.commit
            self._tracer.note(
                message,
                Stage.OUTBOX,
                entry=entry_id.decode() if entry_id else "",
                batch=commit.applied_number,
                ms=commit.last_commit_s * 1000,
            )

    # --- outgoing messages --------------------------------------------------------------------

    def written(
        self,
        session: Session,
        payloads: list[bytes],
        ids: list[bytes],
        envelopes: list[Envelope] | None,
    ) -> None:
        text = session.destination.text
        if envelopes is None and text not in self._open:
            return
        tracer, key = self._tracer, session.destination.key
        for number, (payload, entry_id) in enumerate(zip(payloads, ids, strict=True)):
            message = self._open.get(text, {}).get(entry_id)
            if message is None and envelopes is not None:
                envelope = envelopes[number]
                source = from_message(envelope.source)
                if tracer.concerns(source[0], key[0], envelope):
                    message = tracer.message(source, key, envelope, len(payload))
                if message is not None:
                    self._keep(session, entry_id, message)
            if message is not None:
                entry = entry_id.decode()
                tracer.note(message, Stage.DELIVERED, epoch=session.epoch, entry=entry)

    def acknowledged(self, session: Session, entries: list[Removal]) -> None:
        followed = self._open.get(session.destination.text)
        if followed is None:
            return
        for entry_id, _ in entries:
            message = followed.get(entry_id)
            if message is not None:
                entry = entry_id.decode()
                self._tracer.note(message, Stage.ACKNOWLEDGED, epoch=session.epoch, entry=entry)

    def removed(self, session: Session, entries: list[Removal]) -> None:
        text = session.destination.text
        followed = self._open.get(text)
        if followed is None:
            return
        for entry_id, _ in entries:
            message = followed.pop(entry_id, None)
            if message is not None:
                self._open_count -= 1
                entry = entry_id.decode()
                self._tracer.note(message, Stage.REMOVED, epoch=session.epoch, entry=entry)
        if not followed:
            del self._open[text]

    def _keep(self, session: Session, entry_id: bytes, message: Message) -> None:
        """Keep a message that is about to be written, to record what happens to it."""
        if self._open_count >= MAX_OPEN:
            held = {each.destination.text for each in self._worker.sessions}
            self._open = {text: of for text, of in self._open.items() if text in held}
            self._open_count = sum(map(len, self._open.values()))
            if self._open_count >= MAX_OPEN:
                for following in message.followings:
                    following.lost += 1
                return
        of_session = self._open.setdefault(session.destination.text, {})
        if entry_id not in of_session:
            self._open_count += 1
        of_session[entry_id] = message

    # --- ends ---------------------------------------------------------------------------------

    def dropped(self, sender: Sender | None, envelope: Envelope | None, reason: Reason) -> None:
        if envelope is None:
            return
        source = from_message(envelope.source) if sender is None else sender.key
        message = self._found(source, from_message(envelope.destination), envelope)
        if message is not None:
            expired = reason is MessageReason.EXPIRED
            stage = Stage.EXPIRED if expired else Stage.REFUSED
            self._tracer.note(message, stage, reason=reason)

    def trimmed(self, entry_id: bytes, payload: bytes, reason: Reason) -> None:
        try:
            envelope = Envelope.FromString(payload)
        except DecodeError:
            return
        source, destination = from_message(envelope.source), from_message(envelope.destination)
        message = self._found(source, destination, envelope)
        if message is not None:
            self._tracer.note(message, Stage.TRIMMED, entry=entry_id.decode(), reason=reason)

    def declined(self, envelope: Envelope, reason: Reason, relay: str) -> None:
        source, destination = from_message(envelope.source), from_message(envelope.destination)
        message = self._found(source, destination, envelope)
        if message is not None:
            self._tracer.note(message, Stage.DECLINED, reason=reason, relay=relay)

    def notified(self, envelope: Envelope, reason: Reason) -> None:
        source, destination = from_message(envelope.source), from_message(envelope.destination)
        message = self._found(source, destination, envelope)
        if message is not None:
            self._tracer.note(message, Stage.NOTIFIED, reason=reason)

    def _found(
        self, source: SessionKey, destination: SessionKey, envelope: Envelope
    ) -> Message | None:
        if not self._tracer.concerns(source[0], destination[0], envelope):
            return None
        return self._tracer.message(source, destination, envelope, envelope.ByteSize())

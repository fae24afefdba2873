"""The recorder of a relay worker: events of its messages and sessions.

The worker calls its methods. The recorder hands a batch as a whole to a process that packs its rows
(`relay.analytics.handover`), which costs the worker a fraction of packing them. It packs them
itself if that process does not keep up or has ended, and for batches whose messages must be
inspected one by one: those with messages of partner relays, and those that Redis stored only in
part. Values that are the same for all messages between two sessions (their twins, the number of the
session's name, the seed of the hash) are cached, so each message costs the parsing of its uid and
kind, one hash and one packing.

    committed   accepted or federated_in; delivered if it is written now, else queued
    unwritten   a message that did not fit into its socket after all becomes queued
    written     delivered, for messages read from a stream
    federated   accepted, for messages committed to the outbox; the drainer records the rest
    dropped     dropped, for messages that end undelivered; `trimmed` records those that end unread
                in their queue

A message counts as accepted when Redis has stored it; a message that could not be stored is only
dropped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from google.protobuf.message import DecodeError
from xxhash import xxh3_64_intdigest

from proto.federation.answers import InboundReason
from proto.rmb.reasons import MessageReason, SessionReason
from proto.rmb.types_pb2 import Envelope
from relay.analytics.packing import ENDS, ROW, ROWS_OF_ONE, SUFFIX, Tail, Taken, pack
from relay.analytics.records import NO_NAME, REASON_CODE, RECORD_BYTES, Kind
from relay.analytics.uids import KIND_SEEDS, message_uid, pair_seed, session_uid
from relay.federation.arrival import Arrival
from relay.queues.entries import entry_payload
from relay.sessions.recorder import Recorder

if TYPE_CHECKING:
    from proto.federation.answers import Reason
    from relay.analytics.handover import Handover
    from relay.analytics.journal import Journal
    from relay.queues.batch import Batch, Item, Origin
    from relay.queues.destination import Destination
    from relay.queues.keys import SessionKey
    from relay.sessions.sender import Sender
    from relay.sessions.session import Session
    from relay.sessions.worker import Worker

MAX_PAIRS: Final = 50_000
"""Maximum number of cached pairs of sessions; above it, the cache is cleared."""

UNPROVED: Final = frozenset((MessageReason.BAD_SIGNATURE, InboundReason.UNKNOWN_SOURCE))
"""Reasons of drops of messages whose source is only claimed."""

_pack_row = ROW.pack_into


class EventRecorder(Recorder):
    """Recorder of the events of one worker."""

    told_trims = 1 << 30

    def __init__(self, worker: Worker, journal: Journal, handover: Handover | None = None) -> None:
        """
        Args:
            worker: worker whose events are recorded.
            journal: journal of this process.
            handover: handover to the process that packs batches; None: the worker packs them.
        """
        self._worker = worker
        self._journal = journal
        self._handover = handover
        # By kind of the message, its origin and its destination.
        self._pairs: dict[str | None, dict[Any, dict[Destination, Tail]]]
        self._pairs = {kind: {} for kind in KIND_SEEDS}
        self._sources: dict[tuple[int, str, Destination], tuple[bytes, int]] = {}
        self._count = 0
        self._fresh: Taken | None = None  # the last batch, unless it was handed over
        self._queued = 0  # the worker's count at the last batch
        self._opened: dict[Session, tuple[int, int]] = {}  # uid, when
        journal.on_close = self._forget
        worker.commit.displaced = self._displaced

    def _forget(self) -> None:
        """Clear the caches: numbers of names became invalid, or there are too many pairs."""
        for known in self._pairs.values():
            known.clear()
        self._sources.clear()
        self._count = 0

    # --- messages of a batch ------------------------------------------------------------------

    def committed(self, batch: Batch, ids: list[Any] | None) -> None:
        items = batch.items
        if not items:
            return
        if ids is not None and batch.refused:  # some ids are errors
            items = [item for item, each in zip(items, ids, strict=False) if type(each) is bytes]
        now_us = self._journal.now_us()
        latency_us = max(0, int((self._worker.loop.time() - batch.since) * 1e6))
        waiting: list[int] = []
        # The worker counts messages that are not written now, and others since the last batch. If
        # the count is the same, all messages of this batch are written.
        if ids is None or self._queued != self._worker.metrics.queued:
            self._queued = self._worker.metrics.queued
            sessions = [item[0].session for item in items]
            waiting = [
                number
                for number, session in enumerate(sessions)
                if ids is None or session is None or not session.memory_mode
            ]
        if self._hand_over(batch, now_us, latency_us, waiting):
            self._fresh = None
            return
        self._fresh = taken = self._pack(items, now_us, latency_us)
        if batch.mixed:
            taken.forget_remotes()
        taken.queue(waiting)

    def _hand_over(self, batch: Batch, now_us: int, latency_us: int, waiting: list[int]) -> bool:
        if self._handover is None or batch.mixed or batch.refused:
            return False
        return self._handover.committed(batch, now_us, latency_us, waiting)

    def _pack(self, items: list[Item], now_us: int, latency_us: int) -> Taken:
        journal = self._journal
        journal.reserve(ROWS_OF_ONE * len(items))
        pairs, digest = self._pairs, xxh3_64_intdigest
        uids: list[int] = []
        sizes: list[int] = []
        tails: list[bytes] = []
        errors: list[int] = []
        last: tuple[Any, Any, Any] = (None, None, None)
        tail, seed = b"", 0
        for destination, payload, origin in items:
            envelope = Envelope.FromString(payload)
            kind = envelope.WhichOneof("message")
            # One read of a socket usually has several messages for the same receiver.
            if destination is not last[0] or origin is not last[1] or kind != last[2]:
                last = (destination, origin, kind)
                try:
                    tail, seed = pairs[kind][origin][destination]
                except KeyError:
                    tail, seed = self._look_up(origin, destination, kind, envelope)
            if kind == "error" and origin is not None:
                errors.append(len(uids))
            uids.append(digest(envelope.uid, seed))
            sizes.append(len(payload))
            tails.append(tail)
        taken = pack(journal, now_us, latency_us, uids, sizes, tails)
        taken.note_errors(errors)
        return taken

    def _look_up(
        self, origin: Origin | None, destination: Destination, kind: str | None, envelope: Envelope
    ) -> Tail:
        """Return what is the same for all messages of a kind between two sessions, and cache it."""
        journal, target, what, remote = self._journal, destination.key[0], Kind.ACCEPTED, NO_NAME
        name: str | None
        if origin is None:  # an error that the relay itself sends
            what, twin, name = Kind.ERROR, envelope.source.twin, envelope.source.connection
        else:
            twin, name = origin.key
            if type(origin) is Arrival:
                what, remote = Kind.FEDERATED_IN, journal.remote_code(origin.partner.domain)
        code = journal.session_code(name or "")
        tail = ENDS.pack(twin, target, code, remote) + SUFFIX[what]
        pair = tail, pair_seed(twin, target) ^ KIND_SEEDS[kind]
        if what is Kind.ACCEPTED:
            if self._count >= MAX_PAIRS:
                self._forget()
            self._count += 1
            known = self._pairs[kind].get(origin)
            if known is None:
                self._pairs[kind][origin] = {destination: pair}
            else:
                known[destination] = pair
        return pair

    def unwritten(self, session: Session, payloads: list[bytes]) -> None:
        if self._fresh is None:
            assert self._handover is not None
            self._handover.unwritten(payloads)
            return
        target = session.destination.key[0]
        envelopes = map(Envelope.FromString, payloads)
        self._fresh.queue_uids(_uid_of(each, each.source.twin, target) for each in envelopes)

    # --- messages from a stream, and to other relays -------------------------------------------

    def written(
        self,
        session: Session,
        payloads: list[bytes],
        ids: list[bytes],
        envelopes: list[Envelope] | None,
    ) -> None:
        if envelopes is None:
            return  # `committed` has recorded them
        journal = self._journal
        journal.reserve(len(payloads))
        now_us = journal.now_us()
        buffer, at = journal.buffer, journal.at
        destination = session.destination
        target = destination.key[0]
        sources, seeds, digest = self._sources, KIND_SEEDS, xxh3_64_intdigest
        last, latency_us = b"", 0
        for payload, envelope, entry_id in zip(payloads, envelopes, ids, strict=True):
            source = envelope.source
            key = (source.twin, source.connection, destination)
            try:
                tail, seed = sources[key]
            except KeyError:
                twin, name, _ = key
                if self._count >= MAX_PAIRS:
                    self._forget()
                self._count += 1
                code = journal.session_code(name)
                tail = ENDS.pack(twin, target, code, NO_NAME) + SUFFIX[Kind.DELIVERED]
                seed = pair_seed(twin, target)
                sources[key] = tail, seed
            uid = digest(envelope.uid, seed ^ seeds[envelope.WhichOneof("message")])
            if entry_id[:-2] != last:  # usually the same millisecond
                last = entry_id[:-2]
                latency_us = max(0, now_us - int(entry_id.partition(b"-")[0]) * 1000)
            _pack_row(buffer, at, now_us, uid, len(payload), latency_us, tail)
            at += RECORD_BYTES
        journal.at = at

    def federated(
        self, sender: Sender | None, envelope: Envelope, entry_id: bytes | None, size_bytes: int
    ) -> None:
        if sender is None:
            return  # from the relay itself, or accepted while its destination was a guest here
        twin, name = sender.key
        uid = _uid_of(envelope, twin, envelope.destination.twin)
        ends = uid, twin, envelope.destination.twin, name or "", size_bytes
        now_us = self._journal.now_us()
        self._journal.put(Kind.ACCEPTED, now_us, *ends)
        if envelope.HasField("error"):
            self._journal.put(Kind.ERROR, now_us, *ends)

    # --- ends ---------------------------------------------------------------------------------

    def dropped(self, sender: Sender | None, envelope: Envelope | None, reason: Reason) -> None:
        if sender is not None:
            self._end(sender.key, envelope, reason)
        elif envelope is not None:
            self._end(_source(envelope), envelope, reason)

    def turned_away(self, envelope: Envelope | None, reason: Reason, relay: str) -> None:
        key: SessionKey = (0, None)
        if envelope is not None and reason not in UNPROVED:
            key = _source(envelope)
        self._end(key, envelope, reason, relay)

    def trimmed(self, entry_id: bytes, payload: bytes, reason: Reason) -> None:
        try:
            envelope = Envelope.FromString(payload)
        except DecodeError:
            return
        self._end(_source(envelope), envelope, reason)

    def _displaced(self, entries: list[Any]) -> None:
        """Record the oldest messages that a full queue dropped."""
        for entry_id, fields in entries:
            payload = entry_payload(fields)
            if payload is not None:
                self.trimmed(entry_id, payload, MessageReason.QUEUE_FULL)

    def limited(self, key: SessionKey, envelope: Envelope | None, reason: Reason) -> None:
        self._end(key, envelope, reason, kind=Kind.LIMIT_HIT)

    def _end(
        self,
        key: SessionKey,
        envelope: Envelope | None,
        reason: Reason,
        relay: str = "",
        kind: Kind = Kind.DROPPED,
    ) -> None:
        uid = target = size_bytes = 0
        if envelope is not None:
            target, size_bytes = envelope.destination.twin, envelope.ByteSize()
            uid = _uid_of(envelope, key[0], target)
        now_us = self._journal.now_us()
        code, name = REASON_CODE[reason], key[1] or ""
        self._journal.put(
            kind, now_us, uid, key[0], target, name, size_bytes, reason=code, remote=relay
        )

    # --- sessions -----------------------------------------------------------------------------

    def opened(self, session: Session) -> None:
        twin, name = key = session.destination.key
        uid = session_uid(self._worker.boot_id, key, session.epoch)
        now_us = self._journal.now_us()
        self._opened[session] = uid, now_us
        self._journal.put(Kind.SESSION_OPEN, now_us, uid, twin, 0, name or "")

    def closed(self, session: Session, reason: SessionReason) -> None:
        for known in self._pairs.values():
            self._count -= len(known.pop(session.sender, ()))
        opened = self._opened.pop(session, None)
        if opened is None:
            return  # its take-over had not finished
        uid, opened_us = opened
        twin, name = session.destination.key
        now_us = self._journal.now_us()
        length_us, code = max(0, now_us - opened_us), REASON_CODE[reason]
        self._journal.put(
            Kind.SESSION_CLOSE, now_us, uid, twin, 0, name or "", 0, length_us, reason=code
        )


def _source(envelope: Envelope) -> SessionKey:
    return envelope.source.twin, envelope.source.connection


def _uid_of(envelope: Envelope, source: int, destination: int) -> int:
    return message_uid(source, destination, envelope.WhichOneof("message"), envelope.uid)

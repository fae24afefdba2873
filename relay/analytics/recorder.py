"""What a relay worker records of its messages and sessions.

Stands in the worker as its recorder. Of a message that is delivered from memory two rows are
packed in one step, when its batch is committed: accepted, at the time its batch began to fill, and
delivered, now, since it is written to its socket in the same turn of the loop. What is the same for
all messages between two sessions (their twins, the number of the session's name, the seed of the
hash) is kept, so a message costs the reading of its uid and kind, one hash and one packing.

    committed   accepted or federated_in; delivered where it will be written now, else queued
    unwritten   what did not fit into its socket after all becomes queued
    written     delivered, of what was read from a stream
    federated   accepted, of what is committed to the outbox; the rest is told by the drainer
    dropped     a message ends undelivered; unread ones are told by `trimmed` before

A message counts as accepted when Redis has it: one that could not be stored was only dropped.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from google.protobuf.message import DecodeError
from xxhash import xxh3_64_intdigest

from proto.federation.answers import InboundReason
from proto.rmb.reasons import MessageReason, SessionReason
from proto.rmb.types_pb2 import Envelope
from relay.analytics.records import (
    KINDS,
    NO_LATENCY,
    NO_NAME,
    REASON_CODE,
    RECORD_BYTES,
    Kind,
)
from relay.analytics.uids import KIND_SEEDS, message_uid, pair_seed
from relay.federation.inbound_intake import Arrival
from relay.sessions.recorder import Recorder

if TYPE_CHECKING:
    from proto.federation.answers import Reason
    from relay.analytics.journal import Journal
    from relay.queues.batch import Batch, Origin
    from relay.queues.destination import Destination
    from relay.queues.keys import SessionKey
    from relay.sessions.sender import Sender
    from relay.sessions.session import Session
    from relay.sessions.worker import Worker

MAX_PAIRS: Final = 100_000
"""Pairs of sessions that are kept; above it all are forgotten."""

ROWS_OF_ONE: Final = 3
"""Most rows that one message of a batch makes."""

UNPROVED: Final = frozenset((MessageReason.BAD_SIGNATURE, InboundReason.UNKNOWN_SOURCE))
"""Ends of messages whose source is no more than a claim."""

# As `RECORD`, with all that stays the same as one piece, and the uid as it comes from the hash.
_ROW: Final = Struct("<qQqq16s")
_TWO_ROWS: Final = Struct("<qQqq16sqQqq16s")
_TAIL: Final = Struct("<IIIHBB")
_pack_row = _ROW.pack_into
_pack_two = _TWO_ROWS.pack_into
_ROW_BYTES: Final = RECORD_BYTES
_TWO_BYTES: Final = 2 * RECORD_BYTES
_LATENCY_AT: Final = 24
_KIND_AT: Final = RECORD_BYTES - 2
_LATENCY: Final = Struct("<q")

Pair = tuple[bytes, bytes, int]
"""How rows of a pair of sessions end (when it is taken, when it is delivered), and the seed."""


class EventRecorder(Recorder):
    """Records events of one worker."""

    follows = False
    told_trims = 1 << 30

    def __init__(self, worker: Worker, journal: Journal) -> None:
        self._worker = worker
        self._journal = journal
        self._pairs: dict[Any, dict[Destination, Pair]] = {}
        self._sources: dict[tuple[int, str, Destination], tuple[bytes, int]] = {}
        self._count = 0
        self._fresh = (bytearray(), 0, 0)  # the buffer and the place of the last batch's rows
        self._fresh_uids: dict[int, int] | None = None
        self._opened: dict[Session, tuple[int, int]] = {}  # uid, when
        self._sessions_seen = 0
        self._last_id = (b"", 0)  # first bytes of an entry id, and what they say
        journal.on_close = self._forget

    def _forget(self) -> None:
        """The numbers of names are no longer valid, or there are too many pairs."""
        self._pairs.clear()
        self._sources.clear()
        self._count = 0

    # --- messages of a batch ------------------------------------------------------------------

    def committed(self, batch: Batch, ids: list[Any] | None) -> None:
        items = batch.items
        if not items:
            return
        journal, worker = self._journal, self._worker
        journal.reserve(ROWS_OF_ONE * len(items))
        now_us = journal.now_us()
        latency_us = max(0, int((worker.loop.time() - batch.since) * 1e6))
        taken_us = now_us - latency_us
        buffer = journal.buffer
        at = start = journal.at
        pairs, seeds, digest = self._pairs, KIND_SEEDS, xxh3_64_intdigest
        for index, (destination, payload, origin, envelope) in enumerate(items):
            if ids is not None and type(ids[index]) is not bytes:
                continue  # the worker refuses it
            try:
                taken, delivered, seed = pairs[origin][destination]
            except KeyError:
                taken, delivered, seed = self._pair(origin, destination, envelope)
            kind = envelope.WhichOneof("message")
            uid = digest(envelope.uid, seed ^ seeds[kind])
            size = len(payload)
            session = destination.session
            if ids is not None and session is not None and session.memory_mode:
                _pack_two(
                    buffer, at, taken_us, uid, size, NO_LATENCY, taken,
                    now_us, uid, size, latency_us, delivered,
                )  # fmt: skip
            else:
                waits = _of_kind(delivered, Kind.QUEUED)
                _pack_two(
                    buffer, at, taken_us, uid, size, NO_LATENCY, taken,
                    now_us, uid, size, NO_LATENCY, waits,
                )  # fmt: skip
            at += _TWO_BYTES
            if kind == "error" and origin is not None:
                error = _of_kind(taken, Kind.ERROR)
                _pack_row(buffer, at, taken_us, uid, size, NO_LATENCY, error)
                at += _ROW_BYTES
        journal.at = at
        self._fresh = (buffer, start, at)
        self._fresh_uids = None

    def _pair(self, origin: Origin | None, destination: Destination, envelope: Envelope) -> Pair:
        """What is the same for all messages between two sessions."""
        journal, target = self._journal, destination.key[0]
        if origin is None:  # the relay made it: an error, and nobody's message
            source = envelope.source
            session = journal.session_code(source.connection)
            ends = source.twin, target, session, NO_NAME
            return _pair_of(ends, Kind.ERROR, pair_seed(source.twin, target))
        twin, name = origin.key
        if isinstance(origin, Arrival):
            remote = journal.remote_code(origin.partner.domain)
            ends = twin, target, journal.session_code(name or ""), remote
            return _pair_of(ends, Kind.FEDERATED_IN, pair_seed(twin, target))
        ends = twin, target, journal.session_code(name or ""), NO_NAME
        pair = _pair_of(ends, Kind.ACCEPTED, pair_seed(twin, target))
        if self._count >= MAX_PAIRS:
            self._forget()
        self._count += 1
        self._pairs.setdefault(origin, {})[destination] = pair
        return pair

    def unwritten(self, session: Session, messages: list[tuple[bytes, Envelope]]) -> None:
        buffer, start, end = self._fresh
        if buffer is not self._journal.buffer or end > self._journal.at:
            return  # handed over already: it counts as delivered twice
        uids = self._fresh_uids
        if uids is None:
            uids = self._fresh_uids = {}
            for at in range(start, end, _ROW_BYTES):
                if buffer[at + _KIND_AT] == Kind.DELIVERED:
                    uids[int.from_bytes(buffer[at + 8 : at + 16], "little")] = at
        target = session.destination.key[0]
        for _, envelope in messages:
            uid = _uid_of(envelope, envelope.source.twin, target)
            found = uids.pop(uid, None)
            if found is not None:
                _LATENCY.pack_into(buffer, found + _LATENCY_AT, NO_LATENCY)
                buffer[found + _KIND_AT] = Kind.QUEUED

    # --- messages from a stream, and to other relays -------------------------------------------

    def written(
        self,
        session: Session,
        messages: list[tuple[bytes, Envelope]],
        ids: list[bytes],
        from_stream: bool,
    ) -> None:
        if not from_stream:
            return  # `committed` has seen to it
        journal = self._journal
        journal.reserve(len(messages))
        now_us = journal.now_us()
        buffer, at = journal.buffer, journal.at
        destination = session.destination
        target = destination.key[0]
        sources, seeds, digest = self._sources, KIND_SEEDS, xxh3_64_intdigest
        last, last_us = self._last_id
        for (payload, envelope), entry_id in zip(messages, ids, strict=True):
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
                tail = _TAIL.pack(twin, target, code, NO_NAME, Kind.DELIVERED, 0)
                seed = pair_seed(twin, target)
                sources[key] = tail, seed
            uid = digest(envelope.uid, seed ^ seeds[envelope.WhichOneof("message")])
            if entry_id[:-2] != last:  # the same millisecond, mostly
                last, last_us = entry_id[:-2], int(entry_id.partition(b"-")[0]) * 1000
            _pack_row(buffer, at, now_us, uid, len(payload), max(0, now_us - last_us), tail)
            at += _ROW_BYTES
        journal.at = at
        self._last_id = last, last_us

    def federated(
        self, sender: Sender | None, envelope: Envelope, entry_id: bytes | None, size_bytes: int
    ) -> None:
        if sender is None:
            return  # of the relay itself, or accepted when its destination was a guest here
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
        self._sessions_seen += 1
        uid = xxh3_64_intdigest(f"{self._worker.boot_id}:{self._sessions_seen}")
        now_us = self._journal.now_us()
        self._opened[session] = uid, now_us
        twin, name = session.destination.key
        self._journal.put(Kind.SESSION_OPEN, now_us, uid, twin, 0, name or "")

    def closed(self, session: Session, reason: SessionReason) -> None:
        self._count -= len(self._pairs.pop(session.sender, ()))
        opened = self._opened.pop(session, None)
        if opened is None:
            return  # its take-over was not through
        uid, opened_us = opened
        twin, name = session.destination.key
        now_us = self._journal.now_us()
        length_us, code = max(0, now_us - opened_us), REASON_CODE[reason]
        self._journal.put(
            Kind.SESSION_CLOSE, now_us, uid, twin, 0, name or "", 0, length_us, reason=code
        )


def _pair_of(ends: tuple[int, int, int, int], kind: Kind, seed: int) -> Pair:
    source, target, session, remote = ends
    return (
        _TAIL.pack(source, target, session, remote, kind, 0),
        _TAIL.pack(source, target, session, NO_NAME, Kind.DELIVERED, 0),
        seed,
    )


def _of_kind(tail: bytes, kind: Kind) -> bytes:
    """The same end of a row, of another kind."""
    return tail[:-2] + _ENDS[kind]


_ENDS: Final = tuple(bytes((kind, 0)) for kind in range(len(KINDS)))


def _source(envelope: Envelope) -> SessionKey:
    return envelope.source.twin, envelope.source.connection


def _uid_of(envelope: Envelope, source: int, destination: int) -> int:
    return message_uid(source, destination, envelope.WhichOneof("message"), envelope.uid)

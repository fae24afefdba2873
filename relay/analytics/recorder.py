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

import sys
from array import array
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from google.protobuf.message import DecodeError
from xxhash import xxh3_64_intdigest

from proto.federation.answers import InboundReason
from proto.rmb.reasons import MessageReason, SessionReason
from proto.rmb.types_pb2 import Envelope
from relay.analytics.records import (
    NO_LATENCY,
    NO_NAME,
    REASON_CODE,
    RECORD_BYTES,
    Kind,
)
from relay.analytics.uids import KIND_SEEDS, message_uid, pair_seed
from relay.federation.inbound_intake import Arrival
from relay.queues.entries import entry_payload
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

MAX_PAIRS: Final = 50_000
"""Pairs of sessions that are kept; above it all are forgotten."""

ROWS_OF_ONE: Final = 3
"""Most rows that one message of a batch makes."""

UNPROVED: Final = frozenset((MessageReason.BAD_SIGNATURE, InboundReason.UNKNOWN_SOURCE))
"""Ends of messages whose source is no more than a claim."""

COLUMNS_FROM: Final = 10 if sys.byteorder == "little" else 1 << 62
"""Messages of a batch from which on packing column by column is quicker than row by row."""

# As `RECORD`, with all that stays the same as one piece, and the uid as it comes from the hash.
_ROW: Final = Struct("<qQqq16s")
_ENDS: Final = Struct("<IIIH")
_LATENCY: Final = Struct("<q")
_pack_row = _ROW.pack_into
_ROW_BYTES: Final = RECORD_BYTES
_LATENCY_AT: Final = 24
_REMOTE_AT: Final = RECORD_BYTES - 4
_KIND_AT: Final = RECORD_BYTES - 2
_NULL: Final = NO_LATENCY & (1 << 64) - 1

_SUFFIX: Final = tuple(bytes((kind, 0)) for kind in Kind)
"""Kind, and the reason of what went well: the last bytes of a row."""
_DELIVERED: Final = _SUFFIX[Kind.DELIVERED]
_KIND_DELIVERED: Final = _DELIVERED[:1]

_STORED: Final = {bytes}
"""Types of the replies to messages that were stored: ids."""

Pair = tuple[bytes, int]
"""How the row of a message that is taken ends, and the seed."""


class EventRecorder(Recorder):
    """Records events of one worker."""

    told_trims = 1 << 30
    wants_kinds = True

    def __init__(self, worker: Worker, journal: Journal) -> None:
        self._worker = worker
        self._journal = journal
        # By kind of message, its connection and its destination.
        self._pairs: dict[str | None, dict[Any, dict[Destination, Pair]]]
        self._pairs = {kind: {} for kind in KIND_SEEDS}
        self._sources: dict[tuple[int, str, Destination], tuple[bytes, int]] = {}
        self._count = 0
        self._fresh = (bytearray(), 0, 0)  # the buffer and the place of the last batch's rows
        self._fresh_uids: dict[int, int] | None = None
        self._queued = 0  # as the worker had counted them at the last batch
        self._opened: dict[Session, tuple[int, int]] = {}  # uid, when
        self._sessions_seen = 0
        journal.on_close = self._forget
        worker.commit.displaced = self._displaced

    def _forget(self) -> None:
        """The numbers of names are no longer valid, or there are too many pairs."""
        for known in self._pairs.values():
            known.clear()
        self._sources.clear()
        self._count = 0

    # --- messages of a batch ------------------------------------------------------------------

    def committed(self, batch: Batch, ids: list[Any] | None) -> None:
        items, kinds = batch.items, batch.kinds
        if not items:
            return
        if ids is not None and batch.refused:  # in the place of some ids stand errors
            items = [item for item, each in zip(items, ids, strict=False) if type(each) is bytes]
        local = len(kinds) == len(items)
        if not local:
            kinds = [item[3].WhichOneof("message") for item in items]
        journal, worker = self._journal, self._worker
        journal.reserve(ROWS_OF_ONE * len(items))
        pairs, digest = self._pairs, xxh3_64_intdigest
        uids: list[int] = []
        sizes: list[int] = []
        tails: list[bytes] = []
        last: tuple[Any, Any, Any] = (None, None, None)
        tail, seed = b"", 0
        for (destination, payload, origin, envelope), kind in zip(items, kinds, strict=True):
            # One read of a socket mostly brings several messages for one receiver.
            if destination is not last[0] or origin is not last[1] or kind != last[2]:
                last = (destination, origin, kind)
                try:
                    tail, seed = pairs[kind][origin][destination]
                except KeyError:
                    tail, seed = self._look_up(origin, destination, kind, envelope)
            uids.append(digest(envelope.uid, seed))
            sizes.append(len(payload))
            tails.append(tail)
        now_us = journal.now_us()
        latency_us = max(0, int((worker.loop.time() - batch.since) * 1e6))
        pack = _pack_columns if len(uids) >= COLUMNS_FROM else _pack_rows
        buffer, start = journal.buffer, journal.at
        given = start + len(uids) * _ROW_BYTES
        pack(buffer, start, now_us, latency_us, uids, sizes, tails)
        if not local:
            _forget_remotes(buffer, given, len(uids))
        journal.at = end = given + len(uids) * _ROW_BYTES
        # The worker has counted those that are not written now, and others since the last batch.
        if ids is None or worker.metrics.queued != self._queued:
            self._queued = worker.metrics.queued
            for at, item in zip(range(given, end, _ROW_BYTES), items, strict=True):
                session = item[0].session
                if ids is None or session is None or not session.memory_mode:
                    _queue(buffer, at)
        self._fresh = (buffer, given, end)
        self._fresh_uids = None
        if "error" in kinds:
            for at, item, kind in zip(range(start, given, _ROW_BYTES), items, kinds, strict=True):
                if kind == "error" and item[2] is not None:
                    row = buffer[at : at + _KIND_AT] + _SUFFIX[Kind.ERROR]
                    buffer[journal.at : journal.at + _ROW_BYTES] = row
                    journal.at += _ROW_BYTES

    def _look_up(
        self, origin: Origin | None, destination: Destination, kind: str | None, envelope: Envelope
    ) -> Pair:
        """What is the same for all messages of a kind between two sessions."""
        journal, target, what, remote = self._journal, destination.key[0], Kind.ACCEPTED, NO_NAME
        name: str | None
        if origin is None:  # the relay made it: an error, and nobody's message
            what, twin, name = Kind.ERROR, envelope.source.twin, envelope.source.connection
        else:
            twin, name = origin.key
            if type(origin) is Arrival:
                what, remote = Kind.FEDERATED_IN, journal.remote_code(origin.partner.domain)
        code = journal.session_code(name or "")
        tail = _ENDS.pack(twin, target, code, remote) + _SUFFIX[what]
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
                _queue(buffer, found)

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
        last, latency_us = b"", 0
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
                tail = _ENDS.pack(twin, target, code, NO_NAME) + _DELIVERED
                seed = pair_seed(twin, target)
                sources[key] = tail, seed
            uid = digest(envelope.uid, seed ^ seeds[envelope.WhichOneof("message")])
            if entry_id[:-2] != last:  # the same millisecond, mostly
                last = entry_id[:-2]
                latency_us = max(0, now_us - int(entry_id.partition(b"-")[0]) * 1000)
            _pack_row(buffer, at, now_us, uid, len(payload), latency_us, tail)
            at += _ROW_BYTES
        journal.at = at

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

    def _displaced(self, entries: list[Any]) -> None:
        """A full queue lost its oldest messages."""
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
        self._sessions_seen += 1
        uid = xxh3_64_intdigest(f"{self._worker.boot_id}:{self._sessions_seen}")
        now_us = self._journal.now_us()
        self._opened[session] = uid, now_us
        twin, name = session.destination.key
        self._journal.put(Kind.SESSION_OPEN, now_us, uid, twin, 0, name or "")

    def closed(self, session: Session, reason: SessionReason) -> None:
        for known in self._pairs.values():
            self._count -= len(known.pop(session.sender, ()))
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


def _pack_rows(
    buffer: bytearray,
    at: int,
    now_us: int,
    latency_us: int,
    uids: list[int],
    sizes: list[int],
    tails: list[bytes],
) -> None:
    """Packs rows of messages that were taken, behind them those of their delivery."""
    taken_us, given = now_us - latency_us, at + len(uids) * _ROW_BYTES
    for uid, size, tail in zip(uids, sizes, tails, strict=True):
        _pack_row(buffer, at, taken_us, uid, size, NO_LATENCY, tail)
        _pack_row(buffer, given, now_us, uid, size, latency_us, tail[:-2] + _DELIVERED)
        at += _ROW_BYTES
        given += _ROW_BYTES


def _pack_columns(
    buffer: bytearray,
    at: int,
    now_us: int,
    latency_us: int,
    uids: list[int],
    sizes: list[int],
    tails: list[bytes],
) -> None:
    """The same for many messages: a column of all rows at a time, which takes a third as long."""
    count, taken_us = len(uids), now_us - latency_us
    given = at + count * _ROW_BYTES
    end = given + count * _ROW_BYTES
    buffer[at:given] = _ROW.pack(taken_us, 0, 0, NO_LATENCY, bytes(16)) * count
    rows = memoryview(buffer)[at:given].cast("Q")
    ends = memoryview(b"".join(tails)).cast("Q")
    rows[1::6] = array("Q", uids)
    rows[2::6] = array("Q", sizes)
    rows[4::6] = ends[0::2]
    rows[5::6] = ends[1::2]
    buffer[given:end] = buffer[at:given]
    rows = memoryview(buffer)[given:end].cast("Q")
    rows[0::6] = array("Q", (now_us,)) * count
    rows[3::6] = array("Q", (latency_us,)) * count
    buffer[given + _KIND_AT : end : _ROW_BYTES] = _KIND_DELIVERED * count


def _forget_remotes(buffer: bytearray, at: int, count: int) -> None:
    """Who brought a message says the row of its arrival, not that of its delivery."""
    end = at + count * _ROW_BYTES
    buffer[at + _REMOTE_AT : end : _ROW_BYTES] = bytes(count)
    buffer[at + _REMOTE_AT + 1 : end : _ROW_BYTES] = bytes(count)


def _queue(buffer: bytearray, at: int) -> None:
    """Has a row that says delivered say that the message waits."""
    _LATENCY.pack_into(buffer, at + _LATENCY_AT, NO_LATENCY)
    buffer[at + _KIND_AT] = Kind.QUEUED


def _source(envelope: Envelope) -> SessionKey:
    return envelope.source.twin, envelope.source.connection


def _uid_of(envelope: Envelope, source: int, destination: int) -> int:
    return message_uid(source, destination, envelope.WhichOneof("message"), envelope.uid)

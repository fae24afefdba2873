"""One group commit: messages, removals and counters that Redis applies in a single MULTI."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from proto.rmb.types_pb2 import Envelope
from redispipe import resp
from relay.queues import keys, scripts
from relay.queues.charging import QueueCharge, Told, TwinBounds
from relay.queues.destination import Destination
from relay.queues.held import MESSAGE_BITS, MESSAGE_MASK

if TYPE_CHECKING:
    from proto.rmb.reasons import MessageReason
    from relay.federation.accounts import Charge
    from relay.queues.entries import Removal
    from relay.sessions.session import Session

Handler = Callable[[Any], None]
Displaced = Callable[[list[Any]], None]
"""Called with the entries (ids and fields) that a full queue lost to newer ones."""


class Origin(Protocol):
    """Source of a message: a connection of this worker, or a request of a partner relay."""

    key: keys.SessionKey  # of its sender

    @property
    def mark(self) -> bytes | None:
        """Mark by which a partner relay's message is remembered (`lua/take.lua`); empty: none."""

    @property
    def gone(self) -> bool:
        """Whether its sender has gone without an answer: the message is then not stored."""

    def not_stored(self) -> None:
        """Handle a message that was not stored: it was stored before, or its sender has gone."""

    def refuse_stored(self, envelope: Envelope, reason: MessageReason) -> None:
        """Handle a message that could not be stored."""


class Waiter(Protocol):
    """An object that is notified when a batch is decided."""

    def batch_done(self) -> None:
        """Handle the end of the batch: it is applied, or refused."""


Item = tuple[Destination, bytes, Origin | None]
"""A message to be added to a stream; without an origin if the relay itself created it.

Only its bytes are kept: the parsed message would take about a kilobyte more, and without it each
message is parsed into memory that the previous one released, which is still in the processor's
cache. The few that are needed in parsed form, such as refused ones, are parsed again."""


ITEM_BYTES: Final = 1024
"""Bytes counted for a message in addition to its own while it waits for Redis. This is more than it
takes: a tuple, and a copy of a message of usual size while it is sent."""


class Batch:
    """Everything that is decided in one turn of the event loop.

    `done` becomes true once the batch is known to be applied (or refused). A sender holds back
    pongs and other notices that must not overtake the messages before them until then.
    """

    __slots__ = (
        "_order",
        "absent",
        "charge",
        "commands",
        "done",
        "encoded",
        "encoded_at",
        "extras",
        "handlers",
        "items",
        "mixed",
        "outgoing",
        "outgoing_messages",
        "refused",
        "removals",
        "since",
        "size_bytes",
        "waiters",
    )

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.mixed = False  # some items are not from sessions here
        self._order: list[int] = []  # how each item of a mixed batch is stored
        self.encoded: bytes | list[bytes] = b""  # as sent to Redis, until it is applied
        self.outgoing: list[tuple[bytes, Handler]] = []  # commands for the federation outbox
        self.outgoing_messages = 0  # those in `outgoing` that have a known size
        self.charge: Charge | None = None  # what `outgoing` adds to the accounts of the outbox
        self.extras: list[tuple[bytes, Handler]] = []  # further commands of the same MULTI
        self.removals: list[tuple[Session, list[Removal]]] = []
        # Destination not held here -> packed counts by source twin (`relay.queues.held`).
        self.absent: dict[Destination, dict[int, int]] = {}
        self.handlers: list[Handler] = []  # for the replies after those of the items
        self.waiters: list[Waiter] = []
        self.since = 0.0  # loop time at which the first message was added
        self.size_bytes = 0
        self.commands = 0
        self.encoded_at = 0.0
        self.done = False
        self.refused = False  # some items of it were not stored

    def in_order(self, replies: list[Any]) -> list[Any]:
        """Return the replies of EXEC with one for each item first, in the order of the items."""
        order = self._order
        if not order:
            return replies
        rest = order.count(PLAIN)
        by_script: Iterator[Any] = iter(())
        if BY_SCRIPT in order:
            reply = replies[rest]
            by_script = iter(reply) if isinstance(reply, list) else itertools.repeat(reply)
            rest += 1
        answers = (iter(replies), by_script, itertools.repeat(None))
        return [*(next(answers[way]) for way in order), *replies[rest:]]

    def let_go(self) -> None:
        """Release its contents once all are notified: a sender keeps its last batch."""
        self.encoded = b""
        self.items, self.outgoing, self.extras, self.removals = [], [], [], []
        self.handlers, self.waiters, self.absent, self.charge = [], [], {}, None

    @property
    def waiting_bytes(self) -> int:
        """Approximate memory that the batch takes until it is decided, in bytes."""
        return self.size_bytes + ITEM_BYTES * (len(self.items) + self.outgoing_messages)


PLAIN, BY_SCRIPT, NOT_AT_ALL = range(3)
"""How an item of a batch is stored: as a message of a session of this worker, as a message of a
partner relay (`lua/take.lua`), or not at all, because its answer is no longer awaited."""

SHARE_FROM: Final = 64
SHARE_FROM_BYTES: Final = 1 << 20
"""Messages and bytes from which on the queue of a connected session is charged. A queue that its
session empties at once, on another worker, never reaches these and costs no counting."""
SHARE_FROM_PART: Final = 8
"""The same as a fraction of the queue's bounds (one in so many), for queues with small bounds."""


class QueuePolicy(NamedTuple):
    """Bounds of one session's queue, and of all queues of a twin."""

    max_messages: int = 10_000
    max_bytes: int = 64 << 20
    retention_s: int = 3_600
    drop_oldest: bool = False
    twin: TwinBounds = TwinBounds()

    def counts_shares(self, messages: int, size_bytes: int) -> bool:
        """Check whether a queue of this size is charged although its session is connected."""
        return (
            messages >= SHARE_FROM
            or size_bytes >= SHARE_FROM_BYTES
            or messages * SHARE_FROM_PART >= self.max_messages
            or size_bytes * SHARE_FROM_PART >= self.max_bytes
        )


COMMIT_TTL_S: Final = 86_400
"""Seconds for which the number of a worker's last batch outlives it; renewed while it runs."""
SIZE_LOOK_S: Final = 0.1
"""Seconds for which the measured memory of a queue is used. A queue can exceed its bound by what
arrives in this time."""
FRESH_S: Final = 0.25
"""Maximum age in seconds of the size by which a queue counts as full. It is longer than
`SIZE_LOOK_S`, so that a size that is renewed whenever it is used is always young enough."""
DISPLACED_MORE: Final = 64
"""Entries read beyond those that a queue is known to lose, if the lost entries are wanted: other
workers write into the queue as well."""
EXPIRE_S: Final = 60.0
"""Seconds after which the EXPIRE of a stream is renewed while messages arrive."""
TAKEN_PERIOD_S: Final = 600
TAKEN_PERIODS: Final = 2
"""Number of periods for which a message of a partner relay is remembered: the one in which it was
stored and the next, so at least ten minutes. The longest back-off of a sender is ten minutes."""
GATHERED_BYTES: Final = 4096
"""Average message size in bytes from which on the messages of a batch are not copied into one
buffer: the kernel gathers them."""


def encode(
    batch: Batch,
    boot_id: str,
    number: int,
    policy: QueuePolicy,
    now: float,
    dropped: Callable[[Destination, int], None],
    told: Told,
    displaced: Displaced | None = None,
) -> bytes | list[bytes]:
    """Encode a batch as one MULTI: one buffer, or many where its messages are large.

    The replies of its EXEC, put in order by `Batch.in_order`, are one id per item, followed by one
    reply per entry of `batch.handlers`. This function also determines which sessions this worker
    holds: for a key that it does not hold, the same MULTI publishes the wake and queries how full
    the queue is (delivery model, full queues).

    `dropped` is called with the number of old messages that a queue lost, if the operator chose to
    drop the oldest, `displaced` with these messages, and `told` with what waits of the twins that
    were charged.
    """
    parts = [resp.MULTI]
    append = parts.append
    lengths = resp.length
    absent: dict[Destination, dict[int, int]] = {}
    mixed = batch.mixed
    order: list[int] = []
    taken: list[tuple[bytes, bytes, bytes]] = []  # stream, mark and payload
    for destination, payload, origin in batch.items:
        if mixed:
            way = _way(origin)
            order.append(way)
            if way == NOT_AT_ALL:
                continue
        if mixed and way == BY_SCRIPT:
            assert origin is not None and origin.mark is not None
            taken.append((destination.stream, origin.mark, payload))
        else:
            append(destination.prefix)
            append(lengths(len(payload)))
            append(payload)
            append(resp.CRLF)
        session = destination.session
        if session is None or not session.memory_mode:
            sources = absent.get(destination)
            if sources is None:
                sources = absent[destination] = {}
            twin = Envelope.FromString(payload).source.twin if origin is None else origin.key[0]
            sources[twin] = sources.get(twin, 0) + (len(payload) << MESSAGE_BITS) + 1
    batch.absent = absent
    batch._order = order
    if taken:
        _encode_taken(append, taken)
    handlers: list[Handler] = []
    charge = QueueCharge(2 * policy.retention_s)
    for destination, sources in absent.items():
        _encode_fullness(
            append, handlers, destination, sources, policy, now, charge, dropped, displaced
        )
    charge.encode(append, handlers, told, now)
    for session, removals in batch.removals:
        ids = [entry_id for entry_id, _ in removals]
        append(resp.xdel(session.destination.stream, ids))
        handlers.append(_ignore)
    for payload, handler in batch.outgoing:
        append(payload)
        handlers.append(handler)
    if batch.charge is not None:
        batch.charge.encode(append, handlers, now)
    for payload, handler in batch.extras:
        append(payload)
        handlers.append(handler)
    append(resp.command("SET", keys.commit_number(boot_id), number, "EX", COMMIT_TTL_S))
    append(resp.EXEC)
    batch.handlers = handlers
    plain = order.count(PLAIN) if mixed else len(batch.items)
    batch.commands = plain + bool(taken) + len(handlers) + 1
    batch.encoded_at = now
    if batch.size_bytes >= GATHERED_BYTES * len(batch.items) > 0:
        return parts
    return b"".join(parts)


def _way(origin: Origin | None) -> int:
    if origin is None or origin.mark is None:
        return PLAIN
    return NOT_AT_ALL if origin.gone else BY_SCRIPT


def _encode_taken(append: Callable[[bytes], None], taken: list[tuple[bytes, bytes, bytes]]) -> None:
    """Encode the command that stores messages of partner relays, without copying payloads."""
    source, count = scripts.source("take").encode(), len(taken) + 1
    arguments = [b"EVAL", source, b"%d" % count, keys.TAKEN.encode()]
    arguments += [stream for stream, _, _ in taken]
    arguments += [b"%d" % TAKEN_PERIOD_S, b"%d" % TAKEN_PERIODS]
    for _, mark, payload in taken:
        arguments += (mark, payload)
    append(b"*%d\r\n" % len(arguments))
    for argument in arguments:
        append(resp.length(len(argument)))
        append(argument)
        append(resp.CRLF)


def _encode_fullness(
    append: Callable[[bytes], None],
    handlers: list[Handler],
    destination: Destination,
    sources: dict[int, int],
    policy: QueuePolicy,
    now: float,
    charge: QueueCharge,
    dropped: Callable[[Destination, int], None],
    displaced: Displaced | None = None,
) -> None:
    if not destination.look:
        destination.encode_for_absent()
    if destination.session is None:
        append(destination.announcement)
        handlers.append(destination.announced)
    if (
        policy.drop_oldest
        and now - destination.seen_at < FRESH_S
        and (
            destination.queued >= policy.max_messages
            or destination.queued_bytes >= policy.max_bytes
        )
    ):
        keep = min(policy.max_messages, destination.queued)
        if destination.queued_bytes >= policy.max_bytes:
            keep = max(1, keep * 9 // 10)
            destination.bytes_at = now  # measures what the trim leaves, after it
        if displaced is not None:
            added = sum(sources.values()) & MESSAGE_MASK
            most = destination.queued + added - keep + DISPLACED_MORE
            append(resp.command("XRANGE", destination.stream, "-", "+", "COUNT", most))
        append(resp.command("XTRIM", destination.stream, "MAXLEN", keep))
        _handle_trim(handlers, destination, dropped, displaced)
    append(destination.look)

    def queued(reply: Any) -> None:
        if type(reply) is int:
            destination.queued = reply
            destination.seen_at = now

    handlers.append(queued)
    size_bytes = sum(sources.values()) >> MESSAGE_BITS
    if now >= destination.bytes_at or size_bytes >= SHARE_FROM_BYTES:
        destination.bytes_at = now + SIZE_LOOK_S
        append(resp.command("MEMORY", "USAGE", destination.stream, "SAMPLES", 5))

        def measured(reply: Any) -> None:
            if type(reply) is int:
                destination.queued_bytes = reply

        handlers.append(measured)
    long = policy.counts_shares(destination.queued, max(destination.queued_bytes, size_bytes))
    if long or not (destination.present or destination.session is not None):
        charge.add(destination, sources, long)
    if now >= destination.expire_at:
        destination.expire_at = now + EXPIRE_S
        append(resp.command("EXPIRE", destination.stream, 2 * policy.retention_s))
        handlers.append(_ignore)


def _handle_trim(
    handlers: list[Handler],
    destination: Destination,
    dropped: Callable[[Destination, int], None],
    displaced: Displaced | None,
) -> None:
    oldest: list[Any] = []

    def trimmed(reply: Any) -> None:
        if type(reply) is int and reply:
            if displaced is not None:
                displaced(oldest[:reply])
            dropped(destination, reply)

    def found(reply: Any) -> None:
        if isinstance(reply, list):
            oldest.extend(reply)

    if displaced is not None:
        handlers.append(found)
    handlers.append(trimmed)


def _ignore(reply: Any) -> None:
    """Ignore the reply of a command that is sent for its effect only."""

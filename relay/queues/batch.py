"""One group commit: the messages, removals and counters that Redis takes in a single MULTI."""

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
"""Told which entries a full queue lost for newer ones: ids and fields."""


class Origin(Protocol):
    """What a message came from: a connection here, or a request of another relay."""

    key: keys.SessionKey  # of its sender

    @property
    def mark(self) -> bytes | None:
        """What a message of another relay is remembered by; empty: it is not (`lua/take.lua`)."""

    @property
    def gone(self) -> bool:
        """Whether its sender has gone without an answer: the message is not stored then."""

    def not_stored(self) -> None:
        """The message was stored before, or its sender was gone."""

    def refuse_stored(self, envelope: Envelope, reason: MessageReason) -> None:
        """The message could not be stored."""


class Waiter(Protocol):
    """What waits for a batch."""

    def batch_done(self) -> None:
        """The batch is applied, or refused."""


Item = tuple[Destination, bytes, Origin | None]
"""A message on its way into a stream; without an origin it was made by the relay.

Only its bytes are kept. What they say, parsed, takes some kilobyte more; without it each message is
parsed into what the one before left, which a cache still has. It is parsed again for the few that
ask: refused ones.
"""


ITEM_BYTES: Final = 1024
"""What a message is counted for beside its bytes, while it waits for Redis: more than it takes,
which is a tuple, and a copy of usual ones on their way."""


class Batch:
    """What one event-loop turn decided.

    `done` turns true once it is known to be applied (or refused): pongs and other notices that
    must not overtake the messages before them wait for it in their sender.
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
        self.encoded: bytes | list[bytes] = b""  # as it went to Redis, until it is applied
        self.outgoing: list[tuple[bytes, Handler]] = []  # commands for the federation outbox
        self.outgoing_messages = 0  # of `outgoing`, whose size is known
        self.charge: Charge | None = None  # what `outgoing` adds to the accounts of the outbox
        self.extras: list[tuple[bytes, Handler]] = []  # further commands of the same MULTI
        self.removals: list[tuple[Session, list[Removal]]] = []
        # Not held here -> what each source has for it (`relay.queues.held`).
        self.absent: dict[Destination, dict[int, int]] = {}
        self.handlers: list[Handler] = []  # for the replies after those of the items
        self.waiters: list[Waiter] = []
        self.since = 0.0  # loop time at which the first message came
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
        """Drops what it held, once all is told: a sender keeps its last batch for its own life."""
        self.encoded = b""
        self.items, self.outgoing, self.extras, self.removals = [], [], [], []
        self.handlers, self.waiters, self.absent, self.charge = [], [], {}, None

    @property
    def waiting_bytes(self) -> int:
        """About how much memory it takes until it is decided."""
        return self.size_bytes + ITEM_BYTES * (len(self.items) + self.outgoing_messages)


PLAIN, BY_SCRIPT, NOT_AT_ALL = range(3)
"""How an item of a batch is stored: as it comes from a session here, as it does from another relay
(`lua/take.lua`), or not, as nobody waits for its answer any more."""

SHARE_FROM: Final = 64
SHARE_FROM_BYTES: Final = 1 << 20
"""So much in the queue of a connected session from which on it is charged: a queue that its holder
empties at once, on another worker, never gets there and costs no counting."""
SHARE_FROM_PART: Final = 8
"""... or this part of its bounds, where they are small."""


class QueuePolicy(NamedTuple):
    """The bounds of one session's queue, and of all queues of a twin."""

    max_messages: int = 10_000
    max_bytes: int = 64 << 20
    retention_s: int = 3_600
    drop_oldest: bool = False
    twin: TwinBounds = TwinBounds()

    def counts_shares(self, messages: int, size_bytes: int) -> bool:
        """Whether a queue with so much in it is charged though its session is connected."""
        return (
            messages >= SHARE_FROM
            or size_bytes >= SHARE_FROM_BYTES
            or messages * SHARE_FROM_PART >= self.max_messages
            or size_bytes * SHARE_FROM_PART >= self.max_bytes
        )


COMMIT_TTL_S: Final = 86_400
"""How long the number of a worker's last batch outlives the worker; renewed while it lives."""
SIZE_LOOK_S: Final = 0.1
"""How long an answer about a queue's memory is used: the overshoot is what arrives meanwhile."""
FRESH_S: Final = 0.25
"""Oldest answer that a queue counts as full by; more than `SIZE_LOOK_S`, so that an answer that is
renewed whenever it is used is always young enough."""
DISPLACED_MORE: Final = 64
"""Entries read beyond those a queue is known to lose, where somebody wants to know which: other
workers write into it as well."""
EXPIRE_S: Final = 60.0
"""How often a stream's EXPIRE is renewed while messages arrive."""
TAKEN_PERIOD_S: Final = 600
TAKEN_PERIODS: Final = 2
"""A message of another relay is remembered in the period that it was stored in and the next one:
ten minutes at least. The longest back-off of a sender is one."""
GATHERED_BYTES: Final = 4096
"""Messages of this size on average are not copied into one piece: the kernel gathers them."""


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
    """Writes a batch as one MULTI, in one piece or, where its messages are large, in many.

    The replies in its EXEC are, put in order by `Batch.in_order`, one id per item, then one reply
    per entry of `batch.handlers`. Which sessions are held here is decided now: a key that is not
    gets its wake published and its fullness asked in the same MULTI (delivery model, full queues).
    `dropped` is told how many old messages a queue lost where the operator chose that, `displaced`
    which, and `told` what waits of the twins that were charged.
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
    """Write the command that stores messages of other relays; payloads are not copied."""
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
            destination.bytes_at = now  # what this leaves is measured behind it
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
    """The command's effect is all that counts."""

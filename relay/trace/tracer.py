"""The orders in force in one process, and the way of their events to Redis.

`message` checks whether any order follows a message, once where the message is first seen, and
again where another process reads it from Redis. For a message that is followed, each stage is
recorded; events wait in a bounded buffer and are sent to Redis together, some times a second.

The cost of tracing is bounded in the process: above an order's rate, further messages are not
followed (`skipped`), while those that are followed keep all their stages. Events that Redis cannot
accept are `lost`. Both are counted in Redis beside the events. If Redis refuses to store events,
the order ends at once, in all processes: messages need the memory.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from json.encoder import encode_basestring_ascii as _quoted
from typing import Any, Final, NamedTuple

import hiredis

from proto.rmb.address import SessionKey
from proto.rmb.address import format as key_text
from proto.rmb.types_pb2 import Envelope
from redispipe import resp
from relay.queues import keys
from relay.trace.bounds import (
    FLUSH_S,
    KEPT_EVENTS,
    KEPT_S,
    MAX_BUFFERED,
    MAX_ORDERS,
    MAX_TEXT_CHARS,
)
from relay.trace.events import Stage
from relay.trace.orders import Kind, Order, OrderError, decode

log = logging.getLogger(__name__)

FIELD: Final = "e"
"""Field of a stream entry that contains one event as JSON."""
TRANSACTION_EVENTS: Final = 500
_NOTHING: Final = b"$0\r\n\r\n"
"""An empty argument of a command."""
_TEMPORARY: Final = ("LOADING", "READONLY", "MASTERDOWN", "BUSY", "TRYAGAIN")

Submit = Callable[[bytes, Callable[[Any], None], int], None]


class Following:
    """State of one order in this process.

    Attributes:
        order: the order.
        buffer: events that wait for Redis.
        skipped: messages not followed because of the rate, since this count was last written.
        lost: events that could not be written, since this count was last written.
    """

    __slots__ = (
        *("_adds", "_closed_until", "_room", "_room_at"),
        *("buffer", "key", "lost", "order", "skipped"),
    )

    def __init__(self, order: Order) -> None:
        self.order = order
        self.key = _key(order)
        self.buffer: list[str] = []
        self.skipped = 0
        self.lost = 0
        name = keys.trace(order.id)
        added = resp.command("XADD", name, "MAXLEN", "~", KEPT_EVENTS, "*", FIELD, b"")
        self._adds = added.removesuffix(_NOTHING)
        self._room = float(order.events_per_s)
        self._room_at = 0.0
        self._closed_until = 0.0

    def admits(self, uid: str, now: float) -> bool:
        """Check whether to follow a message that the order is about."""
        order = self.order
        if order.sample < 1 and not order.samples(uid):
            return False
        if now < self._closed_until:
            self.skipped += 1
            return False
        rate = order.events_per_s
        self._room = min(float(rate), self._room + max(0.0, now - self._room_at) * rate)
        self._room_at = now
        if self._room < 1:
            # If the clock is set back, the order is closed for no longer than this.
            self._closed_until = now + min(1.0, (1 - self._room) / rate)
            self.skipped += 1
            return False
        return now < order.until

    def add(self, event: str) -> None:
        """Buffer an event. Events of followed messages may exceed the rate for a moment: then fewer
        messages are followed for a while.
        """
        self._room -= 1
        if len(self.buffer) < MAX_BUFFERED:
            self.buffer.append(event)
        else:
            self.lost += 1

    def command(self, event: str) -> bytes:
        """Encode the command that adds an event; the general encoder takes three times as long."""
        data = event.encode()
        return b"%b%b%b\r\n" % (self._adds, resp.length(len(data)), data)


class Message(NamedTuple):
    """A message that is followed.

    Attributes:
        followings: orders that follow it.
        header: what all its events have in common, as the end of a JSON object.
    """

    followings: tuple[Following, ...]
    header: str


class Tracer:
    """All orders in one process.

    Attributes:
        twins: twins that any order is about, also if it follows only one of their sessions.
        uids: uids that any order is about.
    """

    def __init__(
        self,
        submit: Submit,
        usable: Callable[[], bool],
        clock: Callable[[], float],
        by: str,
        here: str,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        """Initialise the tracer.

        Args:
            submit: function that sends encoded commands and calls a callback with the last reply,
                after the given number of others.
            usable: function that returns whether there is a connection.
            clock: unix seconds.
            by: name of this process.
            here: name of this relay.
            changed: function called after `on` has changed.
        """
        self.twins: frozenset[int] = frozenset()
        self.uids: frozenset[str] = frozenset()
        self.events = self.skipped = self.lost = 0
        self._submit = submit
        self._usable = usable
        self._clock = clock
        self._whose = f',"by":{_quoted(by)},"here":{_quoted(here)}'
        self._changed = changed
        self._loop = asyncio.get_running_loop()
        self._texts: dict[str, str] = {}
        self._followings: dict[str, Following] = {}
        self._by_twin: dict[int, tuple[Following, ...]] = {}
        self._by_uid: dict[str, tuple[Following, ...]] = {}
        self._flush_timer: asyncio.TimerHandle | None = None
        self._end_timer: asyncio.TimerHandle | None = None
        self._refused: set[str] = set()  # by Redis: off, even if the control state has them

    @property
    def on(self) -> bool:
        """Whether any order is in force."""
        return bool(self._followings)

    # --- orders -------------------------------------------------------------------------------

    def put(self, texts: Mapping[str, str]) -> None:
        """Replace the orders, given by id as they are encoded in the control state."""
        if dict(texts) != self._texts:
            self._texts = dict(texts)
            self._refused.intersection_update(texts)
            self._settle()

    def _settle(self) -> None:
        now = self._clock()
        orders: dict[str, Order] = {}
        for order_id, text in sorted(self._texts.items()):
            try:
                order = decode(order_id, text)
            except OrderError as error:
                log.error("%s", error)
                continue
            if order.until > now and order_id not in self._refused and len(orders) < MAX_ORDERS:
                orders[order_id] = order
        self.flush()
        was_on = self.on
        self._followings = {order_id: self._following(order) for order_id, order in orders.items()}
        by_twin: dict[int, tuple[Following, ...]] = {}
        by_uid: dict[str, tuple[Following, ...]] = {}
        for following in self._followings.values():
            if following.key is None:
                uid = following.order.subject
                by_uid[uid] = (*by_uid.get(uid, ()), following)
            else:
                twin = following.key[0]
                by_twin[twin] = (*by_twin.get(twin, ()), following)
        self._by_twin, self._by_uid = by_twin, by_uid
        self.twins, self.uids = frozenset(by_twin), frozenset(by_uid)
        if self._end_timer is not None:
            self._end_timer.cancel()
            self._end_timer = None
        if orders:
            end = min(order.until for order in orders.values())
            self._end_timer = self._loop.call_later(max(0.0, end - now), self._settle)
        if was_on != self.on:
            self._changed()

    def _following(self, order: Order) -> Following:
        known = self._followings.get(order.id)
        return known if known is not None and known.order == order else Following(order)

    # --- messages -----------------------------------------------------------------------------

    def concerns(self, source_twin: int, destination_twin: int, envelope: Envelope) -> bool:
        """Check quickly whether an order may be about a message, before `message` is called."""
        twins = self.twins
        return (
            destination_twin in twins
            or source_twin in twins
            or (bool(self.uids) and envelope.uid in self.uids)
        )

    def message(
        self, source: SessionKey, destination: SessionKey, envelope: Envelope, size_bytes: int
    ) -> Message | None:
        """Return the message if an order follows it, else None."""
        uid = envelope.uid
        now = self._clock()
        found: tuple[Following, ...] = ()
        for following in self._by_uid.get(uid, ()):
            if following.admits(uid, now):
                found = (*found, following)
        for end in (source, destination):
            for following in self._by_twin.get(end[0], ()):
                if end is destination and following.key in (source, source[:1]):
                    continue  # it was already asked for the source
                if following.key not in (end, end[:1]):
                    continue
                if following.admits(uid, now):
                    found = (*found, following)
        if not found:
            return None
        return Message(found, self._header(source, destination, envelope, size_bytes))

    def _header(
        self, source: SessionKey, destination: SessionKey, envelope: Envelope, size_bytes: int
    ) -> str:
        # Encoded by hand, as in `note`: `json` takes several times as long.
        header = f'{self._whose},"size_bytes":{size_bytes}'
        for name, text in (
            ("uid", envelope.uid),
            ("source", key_text(source) if source[0] else ""),
            ("destination", key_text(destination) if destination[0] else ""),
            ("kind", envelope.WhichOneof("message") or ""),
        ):
            if text:
                header += f',"{name}":{_quoted(text[:MAX_TEXT_CHARS])}'
        return header + "}"

    def note(
        self,
        message: Message,
        stage: Stage,
        *,
        at: float = 0.0,
        reason: str = "",
        epoch: int = 0,
        entry: str = "",
        batch: int = 0,
        relay: str = "",
        answer: str = "",
        ms: float = 0.0,
    ) -> None:
        """Record what happened to a message that is followed, now unless `at` is given."""
        # Encoded by hand: `json` takes ten times as long. A stage is a string: adding it is faster
        # than formatting it.
        event = f'{{"at":{at or self._clock():.6f},"stage":"' + stage + '"'
        if entry:
            event += f',"entry":"{entry}"'
        if epoch:
            event += f',"epoch":{epoch}'
        if batch:
            event += f',"batch":{batch}'
        if ms:
            event += f',"ms":{ms:.3f}'
        if reason or relay or answer:
            for name, text in (("reason", reason), ("relay", relay), ("answer", answer)):
                if text:
                    event += f',"{name}":{_quoted(text)}'
        event += message.header
        for following in message.followings:
            following.add(event)
        if self._flush_timer is None:
            self._flush_timer = self._loop.call_later(FLUSH_S, self.flush)

    # --- commands to Redis --------------------------------------------------------------------

    def flush(self) -> None:
        """Send buffered events to Redis."""
        if self._flush_timer is not None:
            self._flush_timer.cancel()
            self._flush_timer = None
        if not self._usable():
            if any(following.buffer for following in self._followings.values()):
                self._flush_timer = self._loop.call_later(FLUSH_S, self.flush)
            return
        for following in self._followings.values():
            if following.buffer or following.skipped or following.lost:
                self._send(following)
            while following.buffer:
                self._send(following)

    def _send(self, following: Following) -> None:
        events = following.buffer[:TRANSACTION_EVENTS]
        del following.buffer[: len(events)]
        skipped, lost = following.skipped, following.lost
        following.skipped = following.lost = 0
        self.events += len(events)
        self.skipped += skipped
        self.lost += lost
        name = keys.trace(following.order.id)
        commands = [following.command(event) for event in events]
        figures = keys.trace_figures(following.order.id)
        for field, count in (("events", len(events)), ("skipped", skipped), ("lost", lost)):
            if count:
                commands.append(resp.command("HINCRBY", figures, field, count))
        commands.append(resp.command("EXPIRE", name, KEPT_S))
        commands.append(resp.command("EXPIRE", figures, KEPT_S))

        def answered(reply: Any) -> None:
            if not isinstance(reply, Exception):
                return
            following.lost += len(events) + lost
            following.skipped += skipped
            if isinstance(reply, hiredis.ReplyError) and not str(reply).startswith(_TEMPORARY):
                self._off(following.order, str(reply))

        payload = b"".join((resp.MULTI, *commands, resp.EXEC))
        self._submit(payload, answered, 1 + len(commands))

    def _off(self, order: Order, why: str) -> None:
        """End an order in all processes, because Redis does not store its events."""
        if order.id in self._refused:
            return
        self._refused.add(order.id)
        log.warning("trace %s is off, redis refuses its events: %s", order.id, why)
        following = self._followings.get(order.id)
        if following is not None:
            following.buffer.clear()
            following.skipped = following.lost = 0
        self._submit(resp.command("HDEL", keys.CONTROL, f"trace:{order.id}"), _ignore, 0)
        self._settle()


def _key(order: Order) -> tuple[int] | SessionKey | None:
    """Return the twin, with its session if the order is about one; None for a uid."""
    if order.kind is Kind.UID:
        return None
    return order.key[:1] if order.kind is Kind.TWIN else tuple(order.key)  # type: ignore[return-value]


def _ignore(reply: Any) -> None:
    """Ignore the reply: other processes will also notice that Redis refuses events."""

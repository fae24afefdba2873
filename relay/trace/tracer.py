"""The orders in force in one process, and their way to Redis.

A message's way: `message` tells whether any order follows it, which is asked once where the message
is seen for the first time, and again where another process reads it from Redis. Of what is followed
each stage is noted; notes wait in a bounded buffer and go to Redis together, some times a second.

What tracing may cost is bounded in the process: above an order's rate further messages are not
followed (`skipped`), those that are keep all their stages. What Redis cannot take is `lost`. Both
are counted in Redis beside the events. When Redis refuses to store, orders are off at once and are
taken back for everybody: memory is needed for messages.
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
"""Of a stream entry: one event as JSON."""
TRANSACTION_EVENTS: Final = 500
_NOTHING: Final = b"$0\r\n\r\n"
"""An empty argument of a command."""
_TEMPORARY: Final = ("LOADING", "READONLY", "MASTERDOWN", "BUSY", "TRYAGAIN")

Submit = Callable[[bytes, Callable[[Any], None], int], None]


class Following:
    """One order, as far as this process has come with it.

    Attributes:
        order: what is followed.
        buffer: events that wait.
        skipped: messages that were not followed, for the rate's sake, since that was written.
        lost: events that could not be written, since that was written.
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
        """Whether a message that the order is about is followed."""
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
            # A clock that is set back closes it for no longer than this.
            self._closed_until = now + min(1.0, (1 - self._room) / rate)
            self.skipped += 1
            return False
        return now < order.until

    def add(self, event: str) -> None:
        """Notes an event. Those of a message that is followed may exceed the rate for a moment:
        then fewer messages are followed for a while."""
        self._room -= 1
        if len(self.buffer) < MAX_BUFFERED:
            self.buffer.append(event)
        else:
            self.lost += 1

    def command(self, event: str) -> bytes:
        """What adds an event to the stream. The general encoder takes three times as long."""
        data = event.encode()
        return b"%b%b%b\r\n" % (self._adds, resp.length(len(data)), data)


class Message(NamedTuple):
    """A message that is followed.

    Attributes:
        followings: by whom.
        header: what all its events say, as the end of a JSON object.
    """

    followings: tuple[Following, ...]
    header: str


class Tracer:
    """What one process does for all orders.

    Attributes:
        twins: those that any order is about, if only one session of them.
        uids: those that any order is about.
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
        """
        Args:
            submit: sends encoded commands; the callback gets the last reply, after so many others.
            usable: whether there is a connection.
            clock: unix seconds.
            by: name of this process.
            here: name of this relay.
            changed: told when it has become `on`, or is not any more.
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
        self._refused: set[str] = set()  # by Redis: off, whatever the control state still says

    @property
    def on(self) -> bool:
        """Whether anything is followed."""
        return bool(self._followings)

    # --- orders -------------------------------------------------------------------------------

    def put(self, texts: Mapping[str, str]) -> None:
        """Makes these the orders, by id as they stand in the control state."""
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
        """Whether an order may be about a message: a quick look, before `message`."""
        twins = self.twins
        return (
            destination_twin in twins
            or source_twin in twins
            or (bool(self.uids) and envelope.uid in self.uids)
        )

    def message(
        self, source: SessionKey, destination: SessionKey, envelope: Envelope, size_bytes: int
    ) -> Message | None:
        """The message, if it is followed."""
        uid = envelope.uid
        now = self._clock()
        found: tuple[Following, ...] = ()
        for following in self._by_uid.get(uid, ()):
            if following.admits(uid, now):
                found = (*found, following)
        for end in (source, destination):
            for following in self._by_twin.get(end[0], ()):
                if end is destination and following.key in (source, source[:1]):
                    continue  # it was asked as the source's
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
        # By hand, as in `note`: `json` takes several times as long.
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
        """Notes what happened to a message that is followed, now unless it says when."""
        # By hand: `json` takes ten times as long. A stage is a string: adding it is quicker than
        # formatting it.
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

    # --- to Redis -----------------------------------------------------------------------------

    def flush(self) -> None:
        """Sends what waits."""
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
        """Redis does not store events: the order ends, here now, and for the others."""
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
    """A twin, with its session if it is about one; None for a uid."""
    if order.kind is Kind.UID:
        return None
    return order.key[:1] if order.kind is Kind.TWIN else tuple(order.key)  # type: ignore[return-value]


def _ignore(reply: Any) -> None:
    """Others find out for themselves as well."""

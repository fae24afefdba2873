"""The sending half of a connection: messages of its client, routed in order.

Messages are routed the moment they arrive, without a task or an await. A message that needs a fact
from elsewhere (its destination twin, whether another worker holds an absent session) is *parked*.
Later ones of this connection to the same key wait behind it, others proceed. Notices (pongs, relay
errors) stay in order too: a pong is a barrier that waits until every earlier message of the
connection is decided and committed, and later notices wait behind it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from hotpath import compiled
from proto.rmb import notices
from proto.rmb.address import to_message
from proto.rmb.inbound import Examined, examiner
from proto.rmb.outline import destination_of
from proto.rmb.reasons import MessageReason, SessionReason
from proto.rmb.routing import Step
from proto.rmb.tags import has_fail_fast
from proto.rmb.types_pb2 import Envelope
from relay.queues.batch import ITEM_BYTES
from relay.sessions.pacing import ANSWER_COST, END_COST, REFUSED_INPUT, VAIN_PER_S, pause_s
from relay.sessions.parked import UNASKED, Fact, Parked

if TYPE_CHECKING:
    from relay.queues.batch import Batch
    from relay.queues.destination import Destination
    from relay.queues.keys import SessionKey
    from relay.server.socket import RelaySocket
    from relay.sessions.meters import Meter
    from relay.sessions.session import Session
    from relay.sessions.worker import Worker

LOOK_UPS: Final = 64
"""Facts that one connection may wait for; above it the connection is not read."""
PARKED_BYTES: Final = 1 << 20
"""Bytes of messages that may wait for facts; above it the connection is not read."""
PARKED_SLICE: Final = 256
"""Parked messages routed in one turn of the loop, which takes some milliseconds."""
AWAY_BYTES: Final = 256 << 10
"""Bytes, with the overhead of each message, that one connection may send while Redis is unavailable
before it is not read: more than none, so that its websocket pings are still answered."""
NOTICES: Final = 1024
"""Notices that may wait behind a barrier; above it the connection is not read."""
NOTICE_BYTES: Final = 1 << 20
"""The same in bytes: a pong returns the content of its ping."""
READY_BYTES: Final = 64 << 10
"""Bytes of notices in one write: a system call for each would cost more than the refusal itself."""


class Sender:
    """Routes the messages of one connection."""

    mark = None  # messages of its client are never repeats
    gone = False  # messages sent before a disconnect are stored

    __slots__ = (
        "_asked",
        "_away_bytes",
        "_batch",
        "_facts",
        "_notice_bytes",
        "_notices",
        "_parked",
        "_parked_bytes",
        "_paused",
        "_ready",
        "_ready_bytes",
        "_source",
        "_vain",
        "ended",
        "examine",
        "key",
        "meter",
        "session",
        "slowed",
        "socket",
        "worker",
    )

    def __init__(
        self,
        worker: Worker,
        key: SessionKey,
        socket: RelaySocket,
        session: Session,
        meter: Meter,
    ) -> None:
        self.worker = worker
        self.key = key
        self.socket = socket
        self.session = session
        self.meter = meter  # of the twin, shared by all its connections here
        self.ended = False
        self.examine: Callable[[bytes], Examined] | None = None  # created when messages arrive
        self._source = b""  # serialized source address; empty if not compiled, as all is parsed
        self._batch: Batch | None = None  # the last batch with a message of this connection
        self._notices: list[tuple[Batch | None, bytes]] = []
        self._notice_bytes = 0
        self._parked: list[Parked] = []
        self._parked_bytes = 0
        self._asked: dict[Destination, None] = {}  # keys a fact is being fetched for
        self._facts: dict[Destination, Fact] | None = None  # fetched, but not yet used
        self._away_bytes = 0  # sent since Redis became unavailable
        self._paused = False
        self._ready: list[bytes] | None = None  # notices of this turn, written at its end
        self._ready_bytes = 0
        self._vain = 0.0  # refused messages and pings that are not charged yet
        self.slowed: asyncio.TimerHandle | None = None  # until then the connection is not read

    @property
    def waits_for(self) -> Iterable[Destination]:
        """Keys for which a fact is being fetched."""
        return self._asked

    # --- messages -----------------------------------------------------------------------------

    def messages_received(self, messages: list[bytes]) -> None:
        """Route the messages of one read of the socket."""
        if self.ended:
            return
        worker = self.worker
        commit = worker.commit
        destinations = worker.destinations
        session = self.session
        examine = self.examine
        bounds = worker.envelope_bounds
        if examine is None:
            examine = self.examine = examiner(self.key, bounds, worker.parse_envelope)
            if compiled.in_use():
                self._source = to_message(self.key).SerializeToString()
        source = self._source
        followed = worker.recorder.followed(self.key) if worker.following else ()
        count = len(messages)
        total = sum(map(len, messages))
        self._ready = []
        limited = self.meter.limited
        now_s = worker.wall_s() if limited else 0.0
        # Set only if the limit may be exceeded, so that messages are counted one by one.
        meter = self.meter if limited and not self.meter.count_all(count, total, now_s) else None
        for payload in messages:
            key = destination_of(payload, source, bounds) if source else None
            envelope: Envelope | None = None  # most messages need none
            reason: MessageReason | None = None
            detail: str | None = None
            if key is None:
                envelope, key, reason, detail = examine(payload)
            if (
                meter is not None
                and reason is not MessageReason.UNPARSABLE
                and (over := meter.count(len(payload), now_s)) is not None
            ):
                if key is not None and envelope is None:
                    envelope = Envelope.FromString(payload)
                worker.limit_hit(self, envelope, over)
                self.refuse(envelope, over)
            elif key is not None:
                destination = destinations.get(key)
                if destination is None:
                    destination = worker.destination(key)
                holder = destination.session
                if holder is not None and holder.memory_mode and not self._parked:
                    self._batch = batch = commit.add(destination, payload, self)
                    if key[0] in followed:
                        told = envelope or Envelope.FromString(payload)
                        worker.recorder.accepted(self, destination, told, len(payload), batch)
                else:
                    fail_fast = envelope is not None and has_fail_fast(envelope.tags)
                    if destination in self._asked:
                        self._wait(destination, payload, fail_fast, envelope)
                    else:
                        self._route(destination, payload, fail_fast, envelope, UNASKED)
            elif reason is not None:
                if self._refuse_input(envelope, reason, detail):
                    break
            elif envelope is not None:
                self._ping(payload, envelope)
        self._write_ready()
        session.messages_in += count
        session.bytes_in += total
        worker.metrics.rx += count
        worker.metrics.rx_bytes += total
        if not commit.pipe.usable or commit.overfull:
            self._hold_back(total + ITEM_BYTES * count)
        if self._vain or self.meter.pace.due_s:
            self._slow_down(count)

    def _route(
        self,
        destination: Destination,
        payload: bytes,
        fail_fast: bool,
        envelope: Envelope | None,
        fact: Fact,
    ) -> None:
        """Route a message whose destination is not simply connected here.

        The envelope of a parked message is `None`, and is parsed if it is needed.
        """
        worker = self.worker
        router = worker.router
        decision = router.decide(destination, fail_fast, fact.present, fact.failed)
        step = decision.step
        if step is Step.QUEUE:
            room, source = worker.room, self.key[0]
            refusal = room.refusal(destination, source, len(payload))
            if refusal is None:
                self._batch = batch = worker.commit.add(destination, payload, self)
                if destination.session is None and not destination.present:
                    room.note(batch, destination, source, len(payload))
                if worker.following:
                    told = envelope or Envelope.FromString(payload)
                    worker.recorder.accepted(self, destination, told, len(payload), batch)
            elif room.holds(destination, source, fact.room):
                if refusal is MessageReason.SOURCE_FULL:
                    worker.hits.message(source, self.session.address)
                self.refuse(envelope or Envelope.FromString(payload), refusal)
            else:
                self._wait_for_fact(destination, payload, fail_fast, envelope)
                found = fact._replace(room=True)
                room.ask(destination, source, lambda: self._answer({destination: found}))
        elif step is Step.FEDERATE:
            number = destination.key[0]
            if not fact.room and not router.outbox_holds(number, self.key[0]):
                self._wait_for_fact(destination, payload, fail_fast, envelope)
                found = fact._replace(room=True)
                router.ask_outbox(number, lambda: self._answer({destination: found}))
                return
            told = envelope or Envelope.FromString(payload)
            outgoing = router.federate(destination, payload, self, told, asked=True)
            if outgoing is not None:  # a pong after a refused message waits for earlier ones
                self._batch = outgoing
                if worker.following:
                    worker.recorder.accepted(self, destination, told, len(payload), outgoing)
        elif step is Step.REFUSE:
            assert decision.reason is not None
            self.refuse(envelope or Envelope.FromString(payload), decision.reason)
        else:
            self._wait_for_fact(destination, payload, fail_fast, envelope)
            if step is Step.LOOK_UP:
                number = destination.key[0]
                router.look_up(number, lambda failed: self._answer({destination: Fact(failed)}))
            else:
                router.ask_presence(
                    destination, lambda there: self._answer({destination: Fact(present=there)})
                )

    # --- waiting for facts --------------------------------------------------------------------

    def _wait_for_fact(
        self, destination: Destination, payload: bytes, fail_fast: bool, envelope: Envelope | None
    ) -> None:
        """Park a message whose destination needs a fact that is about to be requested."""
        self._wait(destination, payload, fail_fast, envelope)
        self._asked[destination] = None
        if len(self._asked) >= LOOK_UPS:
            self._pause()

    def _wait(
        self, destination: Destination, payload: bytes, fail_fast: bool, envelope: Envelope | None
    ) -> None:
        self._park(Parked(destination, payload, fail_fast))
        if self.worker.following:
            told = envelope or Envelope.FromString(payload)
            self.worker.recorder.waits(self, destination, payload, told)

    def _park(self, entry: Parked) -> None:
        self._park_entry(entry)
        if self._parked_bytes >= PARKED_BYTES:
            self._pause()

    def _answer(self, facts: dict[Destination, Fact]) -> None:
        """Record facts. Parked messages are scanned once for all facts of one turn of the loop."""
        if self._facts is None:
            self._facts = {}
            self.worker.loop.call_soon(self._route_parked)
        self._facts.update(facts)

    def _route_parked(self) -> None:
        """Route parked messages, one slice at most; those that still lack a fact stay parked."""
        facts, self._facts = self._facts or {}, None
        self._ready = []
        self._asked = {each: None for each in self._asked if each not in facts}
        waiting = set(self._asked)
        parked, self._parked = self._parked, []
        self._parked_bytes = 0
        left = PARKED_SLICE
        for index, entry in enumerate(parked):
            destination = entry.destination
            if destination is None:
                if self._parked:
                    self._park_entry(entry)
                else:
                    self._send_pong(Envelope.FromString(entry.payload))
            elif destination in waiting:
                self._park_entry(entry)
            elif left:
                left -= 1
                before = len(self._parked)
                fact = facts.get(destination, UNASKED)
                if fact.present is not None:
                    facts[destination] = UNASKED  # only for the message that asked
                self._route(destination, entry.payload, entry.fail_fast, None, fact)
                if len(self._parked) > before:
                    waiting.add(destination)
            else:
                answered = {each: fact for each, fact in facts.items() if each not in waiting}
                self._park_rest(parked[index:], answered)
                break
        self._write_ready()
        if not self._parked or self._parked_bytes < PARKED_BYTES // 2:
            self._resume()

    def _park_rest(self, parked: list[Parked], facts: dict[Destination, Fact]) -> None:
        """Leave the remaining parked messages to the next turn, with the facts they need."""
        for entry in parked:
            self._park_entry(entry)
        self._asked.update(dict.fromkeys(facts))  # messages that arrive meanwhile wait behind it
        self._answer(facts)  # beside those that were answered at once, as without Redis

    def _park_entry(self, entry: Parked) -> None:
        self._parked.append(entry)
        self._parked_bytes += len(entry.payload) + ITEM_BYTES

    # --- refusals and notices -----------------------------------------------------------------

    def _refuse_input(
        self, envelope: Envelope | None, reason: MessageReason, detail: str | None
    ) -> bool:
        """Refuse a message, and return whether that ended the session."""
        if reason is MessageReason.UNPARSABLE:
            self._write_ready()  # earlier notices are written before the socket closes
            self.worker.drop(self, None, reason)
            self.worker.end(self.session, SessionReason.UNPARSABLE)
        else:
            self.refuse(envelope, reason, detail)
        return self.ended

    def refuse(
        self, envelope: Envelope | None, reason: MessageReason, detail: str | None = None
    ) -> None:
        """End a message undelivered: count it, and notify the sender of a request."""
        notice = self._refusal(envelope, reason, detail)
        if notice is not None:
            self.notify(notice)

    def not_stored(self) -> None:
        """Do nothing: only a message of a partner relay can have been stored before."""

    def refuse_stored(self, envelope: Envelope, reason: MessageReason) -> None:
        """End a message of the batch that is being decided.

        Its notice is sent before those that wait for the batch: a pong must not overtake it.
        """
        notice = self._refusal(envelope, reason, None)
        if notice is not None and not self.ended:
            self._write([notice])

    def _refusal(
        self, envelope: Envelope | None, reason: MessageReason, detail: str | None
    ) -> bytes | None:
        self.session.drops += 1
        answer = envelope is not None and not envelope.HasField("request")
        self._vain += ANSWER_COST if answer else 1
        self.worker.drop(self, envelope, reason)
        if envelope is None:
            return None
        notice = notices.refusal(envelope, reason, self.worker.now_s(), self.key, detail)
        if notice is not None:
            self.worker.recorder.notified(envelope, reason)
        return notice

    def _ping(self, payload: bytes, envelope: Envelope) -> None:
        self._vain += 1
        if self._parked:
            self._park(Parked(None, payload, fail_fast=False))
        else:
            self._send_pong(envelope)

    def _send_pong(self, ping: Envelope) -> None:
        batch = self._batch
        self.notify(notices.pong(ping), None if batch is None or batch.done else batch)

    def notify(self, notice: bytes, after: Batch | None = None) -> None:
        """Send a notice, after those that wait and, as a barrier, after a batch."""
        if self.ended:
            return
        if after is None and not self._notices:
            if self._ready is None:
                self._write([notice])
                return
            self._ready.append(notice)
            self._ready_bytes += len(notice)
            if self._ready_bytes >= READY_BYTES:
                self._write_ready()
                self._ready = []
            return
        if after is not None and (not self._notices or self._notices[-1][0] is not after):
            after.waiters.append(self)
        self._notices.append((after, notice))
        self._notice_bytes += len(notice)
        if len(self._notices) >= NOTICES or self._notice_bytes >= NOTICE_BYTES:
            self._pause()

    def batch_done(self) -> None:
        """Send the notices that waited for a batch that is now decided."""
        ready = []
        for batch, notice in self._notices:
            if batch is not None and not batch.done:
                break
            self._notice_bytes -= len(notice)
            ready.append(notice)
        del self._notices[: len(ready)]
        if ready and not self.ended:
            self._write(ready)
        if len(self._notices) < NOTICES // 2 and self._notice_bytes < NOTICE_BYTES // 2:
            self._resume()

    def _write_ready(self) -> None:
        """Write all notices that a read, or the reply to a request, caused, at once."""
        ready, self._ready = self._ready, None
        self._ready_bytes = 0
        if ready and not self.ended:
            self._write(ready)

    def _write(self, ready: list[bytes]) -> None:
        """Write notices to the socket; if the client does not accept them, stop reading from it."""
        self.socket.send_messages(ready)
        if self.session.watch_room():
            self._pause()

    # --- pausing ------------------------------------------------------------------------------

    def room(self) -> None:
        """Read on, as the socket accepts messages again."""
        self._resume()

    def _slow_down(self, count: int) -> None:
        """Charge the messages in vain of this read, and pause reading for the resulting time."""
        vain, self._vain = self._vain, 0.0
        worker = self.worker
        passed, now = max(0.0, count - vain), worker.loop.time()
        pause = pause_s(self.meter.pace, worker.pace, vain, passed, now)
        if pause > 0 and self.slowed is None and not self.ended:
            self.session.slowed += 1
            worker.metrics.slowed += 1
            worker.metrics.slowed_s += pause
            self.slowed = worker.loop.call_later(pause, self._speed_up)
            self._pause()

    def end(self, reason: SessionReason) -> None:
        """Stop routing as the session ends, and charge its twin if its input was the reason."""
        self.ended = True
        if self.slowed is not None:
            self.slowed.cancel()
        if reason in REFUSED_INPUT:
            self.meter.pace.charge(END_COST / VAIN_PER_S, self.worker.loop.time())

    def _speed_up(self) -> None:
        self.slowed = None
        self._resume()

    def _hold_back(self, size_bytes: int) -> None:
        """Stop reading beyond the connection's allowance, as Redis does not keep up."""
        self._away_bytes += size_bytes
        if self._away_bytes >= AWAY_BYTES or self.worker.commit.overfull:
            self._pause()
            self.worker.held_back[self] = None

    def redis_back(self) -> None:
        """Read on, as Redis keeps up again."""
        self._away_bytes = 0
        self._resume()

    def _pause(self) -> None:
        if not self._paused:
            self._paused = True
            self.socket.pause_reading()

    def _resume(self) -> None:
        if (
            self._paused
            and not self.ended
            and self.slowed is None
            and self not in self.worker.held_back
            and len(self._asked) < LOOK_UPS
            and self._parked_bytes < PARKED_BYTES
            and len(self._notices) < NOTICES
            and self._notice_bytes < NOTICE_BYTES
            and not self.session.watch_room()  # else `room` is called when it takes messages
        ):
            self._paused = False
            self.socket.resume_reading()

"""One relay worker: the sessions it holds, and how their messages reach each other.

The socket passes a message to its `Sender`, which routes it into the batch of this turn of the loop
(`CommitLog`). When Redis has applied the batch, `applied` below writes it to the sockets of
sessions held here; others were woken by the batch itself and read their stream. When a receiver's
TCP has acknowledged it, `confirm` removes it from the stream with the next batch.

This module knows nothing of websockets, Django or a real network: sockets, Redis connections and
the time are passed in, so the same code runs under simulation.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from itertools import islice
from typing import Any, Final

from proto.rmb import notices
from proto.rmb.address import from_message
from proto.rmb.blocks import block_parser
from proto.rmb.reasons import SESSIONS, MessageReason, SessionReason
from proto.rmb.types_pb2 import Envelope
from redispipe import resp
from redispipe.address import Connect
from redispipe.pipe import awaited
from relay.queues import keys
from relay.queues.batch import Batch, Item
from relay.queues.commit import WAITING_BYTES, CommitLog
from relay.queues.destination import Destination
from relay.server.socket import RelaySocket
from relay.sessions import takeover
from relay.sessions.counters import Counters
from relay.sessions.guests import Guests
from relay.sessions.hits import Hits
from relay.sessions.hub import Hub
from relay.sessions.meters import MeterBook
from relay.sessions.options import History, Twins, WorkerOptions
from relay.sessions.pacing import Pace
from relay.sessions.recorder import Recorder
from relay.sessions.rights import Rights
from relay.sessions.room import Room
from relay.sessions.router import Router
from relay.sessions.sender import Sender
from relay.sessions.session import INFLIGHT_PART, LOOK_S, SOCKET_PART, Session
from relay.sessions.upkeep import Upkeep
from relay.twins.source import TwinRecord

log = logging.getLogger(__name__)

IDLE_LOOK_S: Final = 0.005
"""Seconds between checks of sockets for acknowledgements while no batch is written."""
STALLED_LOOKS: Final = 100
"""Stalled sockets checked in one tick: thousands of them must not delay the others."""
READ_AGAIN_S: Final = 1.0  # pause until a stream that could not be read is retried
DRAIN_STEP_S: Final = 0.02
DESTINATIONS: Final = 5_000
"""Keys remembered, 0.8 KB each. Above it unused ones go each minute, above twice it at once."""


class Worker:
    """The sessions of one process, its two Redis connections, and what happens between them."""

    def __init__(
        self,
        options: WorkerOptions,
        connect: Connect,
        opening: list[tuple[str | int, ...]],
        twins: Twins,
        recorder: Recorder | None = None,
        history: History | None = None,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.options = options
        self.boot_id = options.boot_id
        self.domains = options.domains
        self.bounds = options.bounds
        self.socket_bytes = int(options.bounds.session_bytes * SOCKET_PART)
        self.most_inflight = INFLIGHT_PART * options.bounds.session_messages
        self.envelope_bounds = options.envelope_bounds
        self.parse_envelope = block_parser()
        self.loop = asyncio.get_running_loop()
        self.wall_s = wall_clock
        self.twins = twins
        self.history = history
        self.gauges: Callable[[], dict[str, float]] = dict  # figures of the surroundings
        self.record(recorder or Recorder())
        self.on_traces: Callable[[dict[str, str]], None] = lambda orders: None
        self.metrics = Counters()
        self.hits = Hits()
        self.meters = MeterBook(options.limit)
        self.pace = Pace()  # of refused messages of all twins
        self.commit = CommitLog(options.boot_id, connect, opening, options.queue, self)
        self.hub = Hub(connect, opening, self)
        self.guests = Guests(self)
        self.router = Router(self)
        self.rights = Rights(self)
        self.room = Room(self)
        self.charged = self.room.charged
        self.upkeep = Upkeep(self)
        self.sessions: dict[Session, bytes] = {}  # joining, held, ending, in order -> account
        self.connections = 0  # sessions that are not ending
        self.destinations: dict[keys.SessionKey, Destination] = {}
        self._destinations_bound = 2 * DESTINATIONS
        self.unconfirmed: dict[Session, None] = {}  # with bytes not known to have arrived
        self.stalled: dict[Session, None] = {}  # the same, but checked less often
        self.full_sessions: dict[Session, None] = {}  # whose socket is full
        self.held_back: dict[Sender, None] = {}  # not read because Redis does not keep up
        self.draining = False
        self.on_leave: Callable[[], None] = self.drain  # set by `Runtime`, to end the process
        self._next_look = 0.0
        self._look_timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting: dict[asyncio.Future[None], None] = {}  # for Redis, in order
        self.claims = takeover.Claims(self)

    # --- life ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Connect to Redis and start the upkeep, without waiting for either."""
        self.commit.pipe.start()
        self.hub.pipe.start()
        self.upkeep.start()
        self.spawn(self.hub.subscribe(keys.GUESTS.encode(), self.guests.news))
        self.spawn(self.hub.subscribe(keys.TWINS_CHANNEL.encode(), self.upkeep.control.twins_news))

    async def stop(self) -> None:
        """Close the Redis connections; sessions should have been drained before."""
        await self.upkeep.stop()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._look_timer is not None:
            self._look_timer.cancel()
        await self.commit.pipe.close()
        await self.hub.pipe.close()

    def record(self, recorder: Recorder) -> None:
        """Report what happens from now on to this recorder."""
        self.recorder, self.recording = recorder, type(recorder) is not Recorder
        self.following = recorder.follows

    def spawn(self, coroutine: Any) -> asyncio.Task[None]:
        """Run a take-over, an ending or a look-up in the background."""
        task: asyncio.Task[None] = self.loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)
        return task

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a task of the worker failed", exc_info=error)

    def request(self, payload: bytes) -> asyncio.Future[Any]:
        """Send one encoded command over the commit connection; the future gets its reply.

        It fails with `LinkLost`, or with the error that Redis answered.
        """
        future, answered = awaited()
        self.commit.submit(payload, answered)
        return future

    async def until_usable(self) -> None:
        """Wait until the commit connection is usable."""
        while not self.commit.pipe.usable:
            future: asyncio.Future[None] = self.loop.create_future()
            self._waiting[future] = None
            try:
                await future
            finally:
                self._waiting.pop(future, None)

    def now_s(self) -> int:
        """Return unix time in whole seconds, as in envelopes."""
        return int(self.wall_s())

    # --- sessions -----------------------------------------------------------------------------

    def open(
        self,
        key: keys.SessionKey,
        socket: RelaySocket,
        twin: TwinRecord,
        user_agent: str = "",
        opening: takeover.Opening | None = None,
    ) -> Session:
        """Add a signed-in connection, whose messages are routed at once, and start its take-over.

        The caller starts the socket with the returned session as its receiver; with `opening` it
        may do so, and answer the handshake, later.
        """
        session = Session(self, self.destination(key), socket, user_agent)
        session.opened_at = self.wall_s()
        session.sender = Sender(self, key, socket, session, self.meters.acquire(key[0]))
        session.guest = self.domains.isdisjoint(twin.relays)
        self.sessions[session] = twin.account
        self.connections += 1
        self.metrics.sessions_opened += 1
        session.joining = self.spawn(takeover.join(self, session, opening))
        return session

    def end(self, session: Session, reason: SessionReason) -> None:
        """End a session: close its socket and give up its key. Idempotent."""
        if session.end_reason is not None:
            return
        session.end_reason = reason
        self.connections -= 1
        session.memory_mode = False
        destination = session.destination
        if destination.session is session:
            destination.session = None
        assert session.sender is not None
        session.sender.end(reason)
        self.full_sessions.pop(session, None)
        self.held_back.pop(session.sender, None)
        self.meters.release(session.sender.meter)
        self.metrics.evictions[reason] += 1
        close = SESSIONS[reason]
        session.socket.close(close.close_code or 1000, close.text)
        self.recorder.closed(session, reason)
        if self.history is not None:
            self.history.closed(session, reason)
        self.spawn(takeover.leave(self, session))

    def drain(self) -> None:
        """Refuse new sessions and close the existing ones, spread over `drain_s`."""
        if not self.draining:
            self.draining = True
            self.spawn(self._drain())

    def leave(self) -> None:
        """End the process: it stops accepting first, so that no client comes back, then drains."""
        if not self.draining:
            self.on_leave()

    async def _drain(self) -> None:
        sessions = list(self.sessions)
        pause_s = self.options.drain_s / max(1, len(sessions))
        due = self.loop.time()
        for session in sessions:
            self.end(session, SessionReason.DRAINED)
            due += pause_s
            if due - self.loop.time() > DRAIN_STEP_S:
                await asyncio.sleep(due - self.loop.time())

    async def drained(self) -> None:
        """Drain, and wait until every session has given up its key."""
        self.drain()
        while self.sessions:
            await asyncio.sleep(DRAIN_STEP_S)

    def destination(self, key: keys.SessionKey) -> Destination:
        """Return what is known about a session key."""
        destination = self.destinations.get(key)
        if destination is None:
            if len(self.destinations) >= self._destinations_bound:
                self.forget_destinations()
            destination = self.destinations[key] = Destination(key)
        return destination

    def forget_destinations(self) -> None:
        """Bound the memory of keys; keep those that are held or that messages wait for."""
        if len(self.destinations) > DESTINATIONS:
            used: set[Destination] = set()
            for session in self.sessions:
                used.add(session.destination)
                if session.sender is not None:
                    used.update(session.sender.waits_for)
            kept = {key: each for key, each in self.destinations.items() if each in used}
            self.destinations.clear()  # senders hold references to this very dictionary
            self.destinations.update(kept)
        self._destinations_bound = 2 * max(DESTINATIONS, len(self.destinations))

    # --- events of the commit log -------------------------------------------------------------

    def confirm(self) -> None:
        """Check which messages have arrived, and add what is due to the batch being filled."""
        if self.meters.due:
            self.meters.commit(self.commit)
        if not self.unconfirmed:
            return
        now = self.loop.time()
        if now < self._next_look:
            return
        self._next_look = now + LOOK_S
        unconfirmed = self.unconfirmed
        for session in list(unconfirmed):
            moving = session.look(now)
            if not session.inflight:
                del unconfirmed[session]
            elif not moving:
                del unconfirmed[session]
                self.stalled[session] = None

    def confirm_stalled(self) -> None:
        """Check some of the stalled sessions; the others have their turn next time."""
        now = self.loop.time()
        stalled = self.stalled
        for session in list(islice(stalled, STALLED_LOOKS)):
            del stalled[session]
            moving = session.look(now)
            if session.inflight:
                (self.unconfirmed if moving else stalled)[session] = None
        if self.commit.has_removals:
            self.commit.schedule()
        self.watch()

    def _look(self) -> None:
        """Check on the timer, for when no batch is written."""
        self._look_timer = None
        self.confirm()
        if self.commit.has_removals:
            self.commit.schedule()
        self.watch()

    def watch(self) -> None:
        """Make sure that unconfirmed messages are checked again."""
        if self.unconfirmed and self._look_timer is None:
            self._look_timer = self.loop.call_later(IDLE_LOOK_S, self._look)

    def applied(self, batch: Batch, ids: list[Any] | None) -> None:
        """Deliver a committed batch to the sessions held here."""
        self.metrics.committed(self.commit.last_commit_s)
        if ids is None:
            self._applied_unseen(batch)
            return
        touched: list[Session] = []
        elsewhere: dict[Destination, None] = {}
        absent = batch.absent
        self.upkeep.rates.filled.update(absent)
        for index, (destination, payload, sender) in enumerate(batch.items):
            entry_id = ids[index]
            if type(entry_id) is not bytes:
                batch.refused = True
                if entry_id is None and sender is not None:
                    sender.not_stored()
                else:
                    log.error("redis did not store a message: %s", entry_id)
                    self.refused((destination, payload, sender))
                continue
            session = destination.session
            if session is not None and session.memory_mode:
                if not session.out:
                    touched.append(session)
                session.out.append(payload)
                session.out_ids.append(entry_id)
            else:
                self.metrics.queued += 1
                destination.stored += 1
                if session is None and destination not in absent:
                    elsewhere[destination] = None
        if self.recording:
            self.recorder.committed(batch, ids)
        written = self.metrics.tx
        for session in touched:
            session.deliver(batch.size_bytes)
        self.metrics.delivered(self.loop.time() - batch.since, self.metrics.tx - written)
        for destination in elsewhere:
            self._wake(destination)
        self.less_waits()
        self.watch()

    def _applied_unseen(self, batch: Batch) -> None:
        """Handle a batch that was found applied, without ids: its sessions read their streams."""
        self.recorder.committed(batch, None)
        for destination in dict.fromkeys(item[0] for item in batch.items):
            session = destination.session
            if session is not None:
                session.catch_up()
            elif destination not in batch.absent:
                self._wake(destination)
        self.metrics.queued += len(batch.items)

    def _wake(self, destination: Destination) -> None:
        """Wake a session that was held here when its message was written, and is not any more."""
        payload = resp.command("PUBLISH", destination.wake, "new")

        def answered(reply: Any) -> None:
            if isinstance(reply, Exception):
                self.commit.add_extra(payload, lambda reply: None)

        self.commit.submit(payload, answered)

    def refused(self, item: Item) -> None:
        """Drop a message that could not be stored."""
        _, payload, sender = item
        envelope = Envelope.FromString(payload)
        if sender is not None:
            sender.refuse_stored(envelope, MessageReason.STORAGE_FULL)
        else:
            self.drop(None, envelope, MessageReason.STORAGE_FULL)

    def less_waits(self) -> None:
        """Resume reading of connections held back, if little enough waits for Redis."""
        if self.held_back and self.commit.waiting_bytes < WAITING_BYTES // 2:
            self._read_on()

    def dropped(self, destination: Destination, count: int) -> None:
        """Count the oldest messages of a full queue, removed as the operator chose."""
        self.drop_unseen(count, MessageReason.QUEUE_FULL)

    def redis_usable(self) -> None:
        """Continue everything that was waiting for Redis, which is back."""
        if self.commit.pipe.connections > 1:
            self.metrics.redis_reconnects += 1
            self.upkeep.redis_was_away()
        waiting, self._waiting = self._waiting, {}
        for future in waiting:
            if not future.done():
                future.set_result(None)
        for session in list(self.sessions):
            session.redis_usable()
        self._read_on()
        self.upkeep.compare_all()

    def redis_down(self) -> None:
        """Do nothing: connections are read as far as their allowance (see `Sender`)."""

    def redis_went_back(self, *, restarted: bool, lost: bool) -> None:
        """Read all streams again from their start, as Redis may have lost something."""
        self.metrics.redis_restarts += restarted
        self.metrics.went_back += lost
        for session in self.sessions:
            session.rewind()

    def resubscribed(self) -> None:
        """Catch up on wakes and evictions missed while the pub/sub connection was down."""
        for session in list(self.sessions):
            session.read()
        self.upkeep.compare_all()
        self.upkeep.refresh()

    def _read_on(self) -> None:
        held_back, self.held_back = self.held_back, {}
        for sender in held_back:
            sender.redis_back()

    # --- events of sessions -------------------------------------------------------------------

    def caught_up(self, session: Session) -> None:
        """Record that a session has everything its stream had."""
        destination = session.destination
        most = max(destination.queued, session.took)
        most_bytes = max(destination.queued_bytes, session.took_bytes)
        # A previous session may have read most of this queue, whose charges end now.
        first = not session.announced and session.took
        if first or destination.shares or self.options.queue.counts_shares(most, most_bytes):
            self.room.give_back(destination)
        destination.shares, session.took, session.took_bytes = None, 0, 0
        destination.queued = destination.queued_bytes = 0
        if not session.announced:
            session.announced = True
            self.recorder.opened(session)

    def stream_unreadable(self, session: Session, error: Exception) -> None:
        """Retry later, as the stream's key holds something else, or Redis is loading."""
        log.error("stream of %s cannot be read: %s", session.destination.text, error)
        self.loop.call_later(READ_AGAIN_S, session.catch_up)

    def unreadable_entry(self, session: Session, entry_id: bytes) -> None:
        """Drop a stream entry of another writer that is not an envelope."""
        log.warning("entry %r of %s is not an envelope", entry_id, session.destination.text)
        self.drop(None, None, MessageReason.UNPARSABLE)

    def expire(self, envelope: Envelope) -> None:
        """Drop a message that was too old when its session came; notify the sender of a request."""
        self.refuse_absent(envelope, MessageReason.EXPIRED)

    def refuse_absent(self, envelope: Envelope, reason: MessageReason) -> None:
        """End a message whose sender may be elsewhere; notify the sender of a request."""
        self.drop(None, envelope, reason)
        key = from_message(envelope.source)
        notice = notices.refusal(envelope, reason, self.now_s(), key)
        if notice is not None and key.twin:
            self.recorder.notified(envelope, reason)
            self.router.send_notice(self.destination(key), notice)

    def limit_hit(self, sender: Sender, envelope: Envelope | None, reason: MessageReason) -> None:
        """Record that a twin is over its limit, with one log line per twin and window."""
        self.metrics.limit_hits += 1
        self.recorder.limited(sender.key, envelope, reason)
        self.hits.message(sender.key[0], sender.session.address)
        if sender.meter.first_hit():
            log.warning("twin %d is over its limit (%s)", sender.key[0], reason)

    def drop(self, sender: Sender | None, envelope: Envelope | None, reason: MessageReason) -> None:
        """Count a message that ends undelivered."""
        self.metrics.drops[reason] += 1
        self.recorder.dropped(sender, envelope, reason)

    def drop_unseen(self, count: int, reason: MessageReason) -> None:
        """Count messages that left their queue without being examined."""
        self.metrics.drops[reason] += count
        for _ in range(count if self.recording else 0):
            self.recorder.dropped(None, None, reason)

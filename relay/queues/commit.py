"""Group commit: everything a worker decides in one turn of its loop, in one MULTI to Redis.

A message goes this way: `add` puts it into the batch that is being filled. At the end of the loop's
turn the batch is encoded and written as one MULTI; while it is unanswered, the next one fills. The
EXEC reply commits every message of the batch: sessions of this worker get theirs from memory; the
PUBLISH in the same MULTI has notified the others. At most one batch is unanswered at any time.

The critical case is a batch whose reply was lost (*in doubt*). Each batch writes its number to
``relay:commit:<boot id>``. After a connection broke, the log first makes sure that it is dead
(``CLIENT KILL``: Redis may still have unread bytes of it), then reads the number. If it is equal,
the batch was applied; if it is lower, the batch is sent again under the same number. A different
run id means that Redis restarted or failed over: streams are read again. Only the number proves
that Redis lost data: it is written in order with everything before it, at first as 0 with a
heartbeat, so it is lower or missing exactly if the last writes are lost.

If Redis is out of memory, it refuses the whole MULTI. Removals are then sent alone, which frees
memory; messages wait for `STORAGE_WAIT_S` and are then refused to their senders.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

import hiredis

from proto.rmb.types_pb2 import Envelope
from redispipe import resp
from redispipe.errors import LinkLost
from redispipe.pipe import ANSWER_S, DISK_FULL, RedisPipe
from relay.queues import keys
from relay.queues.batch import (
    COMMIT_TTL_S,
    ITEM_BYTES,
    Batch,
    Displaced,
    Handler,
    Item,
    Origin,
    QueuePolicy,
    encode,
)
from relay.queues.charging import Held
from relay.queues.destination import Coming, Destination

if TYPE_CHECKING:
    from redispipe.address import Connect
    from relay.sessions.session import Session

log = logging.getLogger(__name__)

BATCH_MESSAGES: Final = 4_096
BATCH_BYTES: Final = 1 << 20
WAITING_BYTES: Final = 64 << 20
"""Bytes of uncommitted messages that a worker holds, overhead included, above which it stops
reading sockets."""
LARGE_BYTES: Final = 64 << 10
"""Message size in bytes from which on messages are counted on their way into a queue (`Coming`)."""
STORAGE_WAIT_S: Final = 2.0
"""Seconds that messages wait for memory in Redis before they are refused to their senders."""
RETRY_S: Final = 0.1
"""Seconds before a refused batch is sent again."""
TEMPORARY: Final = ("LOADING", "READONLY", "MASTERDOWN", "BUSY", "TRYAGAIN")
"""Temporary refusals: the batch is retried for as long as they last. A full disk (`MISCONF`) may
stay full, as memory may, so senders are then notified."""
READONLY_S: Final = 2.0
"""Seconds of read-only refusals after which the connection is reopened. A change of roles takes no
longer, and by then the former master's name leads to the new one, or to a proxy that knows it."""


class CommitOwner(Protocol):
    """The worker, as far as the commit log needs it."""

    def confirm(self) -> None:
        """Check what the sockets' peers have acknowledged (adds to `removals`)."""

    def applied(self, batch: Batch, ids: list[Any] | None) -> None:
        """Handle a committed batch; `ids` is `None` if a reconnection found it applied."""

    def refused(self, item: Item) -> None:
        """Handle a message that could not be stored: the memory or the disk of Redis is full."""

    def less_waits(self) -> None:
        """Note that less waits: a batch was refused and its senders were notified."""

    def dropped(self, destination: Destination, count: int) -> None:
        """Count the oldest messages that a full queue lost."""

    def charged(self, name: str, held: Held, now: float) -> None:
        """Note what waits for or from a twin: name of its hash, counts, and their loop time."""

    def redis_usable(self) -> None:
        """Note that the commit connection is up and nothing is in doubt any more."""

    def redis_down(self) -> None:
        """Note that the commit connection ended."""

    def redis_went_back(self, *, restarted: bool, lost: bool) -> None:
        """Distrust what is known about streams: another run of Redis, or proven data loss."""


class CommitLog:
    """The one commit connection of a worker, and the batches that go through it."""

    def __init__(
        self,
        boot_id: str,
        connect: Connect,
        opening: list[tuple[str | int, ...]],
        policy: QueuePolicy,
        owner: CommitOwner,
    ) -> None:
        self.boot_id = boot_id
        self.policy = policy
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self.pipe = RedisPipe(
            connect,
            opening,
            on_up=self._resolve,
            on_usable=self._usable,
            on_down=self._down,
            answer_s=ANSWER_S,
            quiet=True,
        )
        self.filling = Batch()
        self.displaced: Displaced | None = None  # set by the caller that needs displaced entries
        self.waiting_bytes = 0  # of messages added and not yet decided, see `ITEM_BYTES`
        self.storage_full_since: float | None = None  # loop time of the first refusal
        self.disk_full = False  # whether the disk of Redis is full, rather than its memory
        self.refusal = ""  # why Redis refuses writes at the moment, as logged
        self._refused_since = 0.0  # loop time of this connection's first such refusal
        self.run_id = ""  # of the Redis server at the other end
        self.client_id = 0  # of the connection, as Redis numbers it
        self._ready: deque[Batch] = deque()  # full batches, older than `filling`
        self._unanswered: Batch | None = None
        self._number = 0  # of the last batch that was written
        self._applied = 0  # of the last batch known to be applied
        self.numbered = False  # whether Redis has a number of this worker, even if 0
        self._left_at = 0.0  # loop time at which the last connection ended
        self._old: list[tuple[str, int]] = []  # (run id, client id) that may still have our bytes
        self._removals: dict[Session, None] = {}  # sessions with entries to remove
        self._scheduled = False
        self._retry: asyncio.TimerHandle | None = None  # runs while a refused batch waits
        self._found_applied = False  # the unanswered batch, as the newest connection saw it
        self.sent_at = 0.0  # loop time at which the unanswered batch was written
        self.last_commit_s = 0.0  # how long the last batch took

    # --- input --------------------------------------------------------------------------------

    def add(self, destination: Destination, payload: bytes, sender: Origin | None) -> Batch:
        """Add a message to the batch that is being filled, and return that batch."""
        batch = self.filling
        if not batch.items:
            batch.since = self._loop.time()
        batch.items.append((destination, payload, sender))
        size = len(payload)
        batch.size_bytes += size
        self.waiting_bytes += size + ITEM_BYTES
        if size >= LARGE_BYTES:
            source = Envelope.FromString(payload).source.twin if sender is None else sender.key[0]
            batch.waiters.append(Coming(destination, source, size))
        if batch.size_bytes >= BATCH_BYTES or len(batch.items) >= BATCH_MESSAGES:
            self._ready.append(batch)
            self.filling = Batch()
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._turn)
        return batch

    def add_extra(self, payload: bytes, handler: Handler) -> Batch:
        """Add one command to the MULTI of the current batch; its reply goes to `handler`.

        The handler gets None if the batch was found applied after its replies were lost.
        """
        self.filling.extras.append((payload, handler))
        self.schedule()
        return self.filling

    def add_outgoing(self, payload: bytes, handler: Handler, size_bytes: int = 0) -> Batch:
        """Like `add_extra`, for messages to a partner relay: they wait for memory."""
        batch = self.filling
        batch.outgoing.append((payload, handler))
        if size_bytes:
            batch.size_bytes += size_bytes
            batch.outgoing_messages += 1
            self.waiting_bytes += size_bytes + ITEM_BYTES
        self.schedule()
        return batch

    def close_full(self) -> None:
        """Begin another batch if the current one has reached a bound with outgoing messages.

        `add_outgoing` does not do this itself, so that commands that must be in one MULTI stay
        together.
        """
        batch = self.filling
        if batch.size_bytes >= BATCH_BYTES or len(batch.outgoing) >= BATCH_MESSAGES:
            self._ready.append(batch)
            self.filling = Batch()

    def remove(self, session: Session) -> None:
        """Schedule the removal of the session's entries with the next batch."""
        self._removals[session] = None

    def schedule(self) -> None:
        """Schedule a write of what waits at the end of this turn of the loop."""
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._turn)

    @property
    def applied_number(self) -> int:
        """Number of the last batch that is known to be applied."""
        return self._applied

    @property
    def idle(self) -> bool:
        """Whether nothing is waiting or unanswered."""
        return (
            self._unanswered is None
            and not self._ready
            and not self._removals
            and not (self.filling.items or self.filling.extras or self.filling.outgoing)
        )

    @property
    def has_removals(self) -> bool:
        """Whether entries wait to be removed."""
        return bool(self._removals)

    @property
    def overfull(self) -> bool:
        """Whether more waits than a worker may hold."""
        return self.waiting_bytes >= WAITING_BYTES

    # --- writing ------------------------------------------------------------------------------

    def _turn(self) -> None:
        self._scheduled = False
        self._write()

    def _write(self) -> None:
        if self._unanswered is not None or not self.pipe.usable or self._retry is not None:
            return
        self._owner.confirm()
        if self._ready:
            batch = self._ready.popleft()
        else:
            batch = self.filling
            if not (batch.items or batch.extras or batch.outgoing or self._removals):
                return
            self.filling = Batch()
        self._number += 1
        self._submit(batch)

    def _submit(self, batch: Batch) -> None:
        """Write a batch under the current number; also used to send it again."""
        for session in self._removals:
            batch.removals.append((session, session.take_removals()))
        self._removals.clear()
        if self.storage_full_since is not None:
            self._write_alone(batch)
        payload = encode(
            batch,
            self.boot_id,
            self._number,
            self.policy,
            self._loop.time(),
            self._owner.dropped,
            self._owner.charged,
            self.displaced,
        )
        batch.encoded = payload
        self._unanswered = batch
        self.sent_at = self._loop.time()
        self.pipe.submit(payload, self._answered, 1 + batch.commands, at_once=True)

    def _write_alone(self, batch: Batch) -> None:
        """Send commands that free memory outside the MULTI, with which they would be refused."""
        removals, batch.removals = batch.removals, []
        for session, entries in removals:

            def answered(
                reply: Any, session: Session = session, entries: list[Any] = entries
            ) -> None:
                if isinstance(reply, Exception):
                    session.removals_lost(entries)
                    self.remove(session)
                else:
                    session.removals_done(entries)

            ids = [entry_id for entry_id, _ in entries]
            self.pipe.submit(resp.command("XDEL", session.destination.stream, *ids), answered)
        extras, batch.extras = batch.extras, []
        for extra in extras:

            def alone(reply: Any, extra: tuple[bytes, Handler] = extra) -> None:
                if isinstance(reply, LinkLost):
                    self.filling.extras.append(extra)
                    self.schedule()
                else:
                    extra[1](reply)

            self.pipe.submit(extra[0], alone)

    # --- answers ------------------------------------------------------------------------------

    def _answered(self, reply: Any) -> None:
        batch = self._unanswered
        assert batch is not None
        if isinstance(reply, LinkLost):
            return  # in doubt: `_resolve` finds out
        if isinstance(reply, hiredis.ReplyError) or reply is None:
            self._refused(batch, str(reply))
            return
        self.last_commit_s = self._loop.time() - self.sent_at
        self.writes_work()
        self._finish(batch, batch.in_order(reply))

    def _finish(self, batch: Batch, reply: list[Any] | None) -> None:
        """Notify everything that waits for an applied batch; without a reply if it was in doubt."""
        self._unanswered = None
        self._applied = self._number
        self.waiting_bytes -= batch.waiting_bytes
        batch.done = True
        if reply is not None and self._ready:
            self._write()  # a full one: Redis works on it while this worker delivers
        self._owner.applied(batch, reply)
        first = len(batch.items)
        for index, handler in enumerate(batch.handlers):
            handler(None if reply is None else reply[first + index])
        for session, entries in batch.removals:
            session.removals_done(entries)
        for sender in batch.waiters:
            sender.batch_done()
        batch.let_go()
        self._write()

    def _refused(self, batch: Batch, why: str) -> None:
        """Retry or give up a batch whose MULTI Redis refused; nothing of it was applied."""
        now = self._loop.time()
        if why.startswith(TEMPORARY):
            self.refused_for_now(why)
        elif self.storage_full_since is None:
            self.cannot_store(why)
        elif now - self.storage_full_since >= STORAGE_WAIT_S:
            self._give_up()
        self._retry = self._loop.call_later(RETRY_S, self._offer_again)

    def cannot_store(self, why: str) -> None:
        """Record that Redis has no space, in memory or on its disk."""
        if self.storage_full_since is None:
            self.storage_full_since = self._loop.time()
            log.error("redis refuses to store: %s", why)
        self.disk_full = why.startswith(DISK_FULL)

    def refused_for_now(self, why: str) -> None:
        """Record that Redis takes no writes; after a while, drop a connection that is read-only."""
        now = self._loop.time()
        if why != self.refusal:
            log.warning("redis refuses for now: %s", why)
            self.refusal, self._refused_since = why, now
        elif why.startswith("READONLY") and now - self._refused_since >= READONLY_S:
            self._refused_since = now
            self.pipe.drop()

    def writes_work(self) -> None:
        """Record that Redis has accepted a write."""
        self.storage_full_since, self.disk_full, self.refusal = None, False, ""

    def _give_up(self) -> None:
        """Refuse all waiting messages to their senders: they cannot be stored.

        This includes later batches, although there might soon be room for them: a partner relay
        sends refused messages again, and messages that followed them must not be stored before
        them. The other commands of the refused batch have been sent alone by now; its number is
        used for the next batch.
        """
        assert self._unanswered is not None
        refused = [self._unanswered, *self._ready, self.filling]
        self._unanswered = None
        self._number -= 1
        self._ready.clear()
        self.filling = Batch()
        self.filling.extras = [extra for batch in refused[1:] for extra in batch.extras]
        for batch in refused:
            self.waiting_bytes -= batch.waiting_bytes
            batch.done = True
            for item in batch.items:
                self._owner.refused(item)
            for _, handler in batch.outgoing:
                handler(hiredis.ReplyError("OOM"))
            for sender in batch.waiters:
                sender.batch_done()
            batch.let_go()
        self._owner.less_waits()

    def _offer_again(self) -> None:
        self._retry = None
        if not self.pipe.usable:
            return  # `_usable` continues
        if self._unanswered is None:
            self._write()
        else:
            self._owner.confirm()
            self._submit(self._unanswered)

    # --- the connection -----------------------------------------------------------------------

    def _down(self) -> None:
        if self.client_id:
            self._old.append((self.run_id, self.client_id))
            self.client_id = 0
            self._left_at = self._loop.time()
        self._owner.redis_down()

    async def _resolve(self) -> None:
        """On a new connection: make sure that no old one is alive, then settle what is in doubt."""
        call = self.pipe.call
        run_id = resp.info(await call("INFO", "server")).get("run_id")
        if run_id is None:
            raise hiredis.ProtocolError("INFO without run_id")
        client_id = int(await call("CLIENT", "ID"))
        for old in list(self._old):
            if old[0] == run_id:
                try:
                    await call("CLIENT", "KILL", "ID", old[1])
                except hiredis.ReplyError as error:
                    if "No such client" not in str(error):
                        raise
            self._old.remove(old)
        found = await call("GET", keys.commit_number(self.boot_id))
        stored = int(found or 0)
        self._found_applied = stored == self._number
        restarted = bool(self.run_id) and self.run_id != run_id
        ran_out = found is None and self._loop.time() - self._left_at >= COMMIT_TTL_S / 2
        lost = stored < self._applied or (found is None and self.numbered)
        if lost and ran_out:
            lost = False
            log.warning("redis was away for longer than it keeps batch numbers: not compared")
        elif lost:
            log.error("redis went back in time from batch %d to %d", self._applied, stored)
        elif restarted:
            log.info("redis restarted and has the last confirmed batch, %d", stored)
        self._applied = min(stored, self._applied)
        self.numbered = found is not None
        self.run_id, self.client_id = run_id, client_id
        if restarted or lost:
            self._owner.redis_went_back(restarted=restarted, lost=lost)
            self._removals.clear()
            if self._unanswered is not None:
                self._unanswered.removals = []

    def _usable(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        if self._unanswered is not None and not self._found_applied:
            self._submit(self._unanswered)
        self._owner.redis_usable()
        if self._unanswered is not None and self._found_applied:
            self._finish(self._unanswered, None)
        else:
            self._write()

    def submit(self, payload: bytes, callback: Callable[[Any], None], skip: int = 0) -> None:
        """Write a separate request (a read, a script) between the batches, in order."""
        if self.pipe.usable:
            self.pipe.submit(payload, callback, skip)
        else:
            callback(LinkLost("redis is away"))

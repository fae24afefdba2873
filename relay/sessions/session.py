"""The receiving half of a connection: one session key, held by this worker.

A held session is in one of two modes. In *memory mode* each message that this worker commits for it
is written to the socket from memory. In *catch-up* no message is: the stream is read page by page
until a short page shows that the socket has everything. A session catches up after its take-over,
when its socket does not accept what it is given, and whenever ids of committed messages are
unknown.

`read_up_to` is advanced by stream reads only. Messages delivered from memory are above it, and are
known by their ids until their removal is confirmed, so a stream read caused by another writer skips
them. All reads and commits of a worker share one connection, so replies come in the order of facts.

An entry is removed from the stream only after the peer's TCP has acknowledged its bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Set
from typing import TYPE_CHECKING, Any, Final

import hiredis

from proto.rmb.reasons import MessageReason, SessionReason
from proto.rmb.types_pb2 import Envelope
from redispipe import resp
from redispipe.errors import LinkLost
from relay.queues.destination import Destination
from relay.queues.entries import Removal, entry_payload, fingerprint, has_expired, readable
from relay.sessions import rewind
from relay.sessions.pages import Pages

if TYPE_CHECKING:
    from relay.server.socket import RelaySocket
    from relay.sessions.sender import Sender
    from relay.sessions.worker import Worker

REFUSED_MESSAGES: Final = (MessageReason.TEXT_FRAME, MessageReason.TOO_LARGE)
"""Reasons for which the frame reader refuses a message, which ends the session."""
START: Final = b"-"
NO_ENTRIES: Final[frozenset[bytes]] = frozenset()
SOCKET_PART: Final = 3 / 4
"""Part of a session's memory bound that its socket may use; objects and gaps take the rest."""
INFLIGHT_PART: Final = 32
"""Messages in flight at most, each remembered, as a multiple of the session's message bound."""
LOOK_S: Final = 0.004
"""Minimum seconds between checks of a socket for acknowledgements while batches are written. Each
check without progress doubles the pause, up to `LONGEST_LOOK_S`."""
STALLED_S: Final = 0.1
"""Seconds between checks above which a socket counts as stalled."""
LONGEST_LOOK_S: Final = 1.0


class Session:
    """One held session: what was written to its socket, and what is still in its stream."""

    __slots__ = (
        "__weakref__",
        "_pages",
        "_read_again",
        "_reading",
        "address",
        "announced",
        "bytes_in",
        "bytes_out",
        "claiming",
        "destination",
        "drops",
        "end_reason",
        "epoch",
        "full_bytes",
        "full_since",
        "guest",
        "had",
        "highest_evict",
        "inflight",
        "joining",
        "live",
        "look_at",
        "look_delay_s",
        "memory_mode",
        "messages_in",
        "messages_out",
        "on_released",
        "opened_at",
        "out",
        "out_ids",
        "read_up_to",
        "released",
        "removals",
        "removing",
        "sender",
        "slowed",
        "socket",
        "socket_closed",
        "suspects",
        "took",
        "took_bytes",
        "user_agent",
        "worker",
    )

    def __init__(
        self, worker: Worker, destination: Destination, socket: RelaySocket, user_agent: str = ""
    ) -> None:
        self.worker = worker
        self.destination = destination
        self.socket = socket
        self.address = socket.remote
        self.user_agent = user_agent
        self.sender: Sender | None = None  # the sending half, until the session is gone
        self.opened_at = 0.0  # unix seconds
        self.claiming = False  # the key was claimed, and Redis has not refused
        self.epoch = 0  # of the claim; 0 before its reply
        self.highest_evict = 0  # highest epoch seen in an `evict` since SUBSCRIBE
        self.guest = False  # its twin does not list this relay
        self.joining: asyncio.Task[None] | None = None  # the take-over in progress
        self.released = 0  # highest epoch in a `released` since SUBSCRIBE
        self.on_released: Callable[[], None] | None = None  # the take-over waits for one
        self.end_reason: SessionReason | None = None  # set once: the session is ending
        self.socket_closed = False  # what it has acknowledged is final
        self.live = False  # the take-over is complete: streams may be read
        self.memory_mode = False
        self.read_up_to = START  # last id seen by a stream read
        self._reading = False  # a stream read is unanswered
        self._read_again = False  # whether to read again after that
        self._pages = Pages()
        self.out: list[bytes] = []  # messages of this batch, not yet written
        self.out_ids: list[bytes] = []
        self.inflight: list[tuple[int, bytes, int]] = []  # (end position, id, hash)
        self.look_at = 0.0  # loop time of the next check for acknowledgements
        self.look_delay_s = 0.0  # grows while checks find no progress
        self.removals: list[Removal] = []  # acknowledged, not yet in a batch
        self.removing: dict[bytes, int] = {}  # in a batch, not yet confirmed
        self.had: rewind.Had | None = None  # before Redis went back in time
        self.full_since: float | None = None  # loop time since which a full socket took nothing
        self.full_bytes = 0  # what it held then
        self.suspects: Set[bytes] = NO_ENTRIES  # unread entries that the check found once
        self.took = self.took_bytes = 0  # read from the stream since it last had everything
        self.announced = False  # whether `Recorder.opened` was called
        self.messages_in = self.bytes_in = self.messages_out = self.bytes_out = 0
        self.drops = self.slowed = 0  # slowed: pauses in reading

    @property
    def held(self) -> bool:
        """Whether messages for the key are this session's: from the claim to the end."""
        return self.epoch > 0 and self.end_reason is None

    # --- events of socket and Redis -----------------------------------------------------------

    def messages_received(self, messages: list[bytes]) -> None:
        """Route messages that the client sent."""
        if self.sender is not None:
            self.sender.messages_received(messages)

    def closed(self, code: int, detail: str | None) -> None:
        """End the session, as its connection was closed."""
        self.socket_closed = True
        if detail is None:
            self.worker.end(self, SessionReason.CLIENT_CLOSE)
            return
        if detail in REFUSED_MESSAGES:
            self.worker.drop(self.sender, None, MessageReason(detail))
        self.worker.end(self, SessionReason(detail))

    def news(self, payload: bytes) -> None:
        """Handle a message of its channel: ``new``, ``evict <epoch>`` or ``released <epoch>``."""
        word, _, number = payload.partition(b" ")
        if word == b"evict":
            self.evicted(int(number))
            return
        if word == b"released":
            self.released = max(self.released, int(number))
            if self.on_released is not None:
                self.on_released()
        self.read()

    def evicted(self, epoch: int) -> None:
        """Handle a claim of the key under an epoch; a higher one than its own ends this session."""
        self.highest_evict = max(self.highest_evict, epoch)
        if 0 < self.epoch < epoch:
            self.worker.end(self, SessionReason.REPLACED)

    def redis_usable(self) -> None:
        """Make a read that was lost, or was not possible, now that Redis is back."""
        if self._read_again:
            self.read()

    # --- from memory --------------------------------------------------------------------------

    def deliver(self, batch_bytes: int) -> None:
        """Write a batch's `out` and `out_ids` as far as they fit; the rest is in the stream."""
        worker, out, ids = self.worker, self.out, self.out_ids
        self.out, self.out_ids = [], []
        self.destination.stored += len(out)
        if (
            self.socket.buffered_bytes()
            or batch_bytes > worker.socket_bytes
            or len(self.inflight) >= worker.most_inflight
        ):
            fitting = self._fitting(out)
            if fitting < len(out):
                worker.metrics.queued += len(out) - fitting
                self.memory_mode = False
                worker.loop.call_soon(self._read_on)
                worker.recorder.unwritten(self, out[fitting:])
            if fitting:
                self._write(out[:fitting], ids[:fitting])
        else:
            self._write(out, ids)
            if len(out) >= worker.bounds.session_messages:
                worker.loop.call_soon(self._judge)

    def _fitting(self, payloads: list[bytes]) -> int:
        """Return how many messages fit into the socket; one that is too large for it goes alone."""
        room = self._room_bytes()
        bound = self.worker.bounds.session_messages
        for index, payload in enumerate(payloads):
            if room <= 0 or index == bound:
                return index
            room -= len(payload)
            if room < 0 and index:
                return index
        return len(payloads)

    def _write(
        self, payloads: list[bytes], ids: list[bytes], envelopes: list[Envelope] | None = None
    ) -> None:
        position = self.socket.written
        total = 0
        inflight = self.inflight.append
        for index, payload in enumerate(payloads):  # in compiled code `zip` is an ordinary call
            size = len(payload)
            total += size
            position += size + (2 if size < 126 else 4 if size < 65536 else 10)
            inflight((position, ids[index], fingerprint(payload)))
        worker = self.worker
        self.socket.send_messages(payloads)
        if self not in worker.unconfirmed:
            worker.unconfirmed[self] = None
            self.look_at = 0.0
            self.look_delay_s = LOOK_S
        self.messages_out += len(payloads)
        self.bytes_out += total
        worker.metrics.tx += len(payloads)
        worker.metrics.tx_bytes += total
        if worker.following or (envelopes is not None and worker.recording):
            worker.recorder.written(self, payloads, ids, envelopes)

    def _room_bytes(self) -> int:
        """Return how many more bytes the socket may be given; 0 when it is full."""
        if len(self.inflight) >= self.worker.most_inflight:
            return 0
        buffered = self.socket.buffered_bytes()
        if not buffered:
            return self.worker.socket_bytes
        if buffered >= self.worker.socket_bytes:
            return 0
        taken = self.socket.written - buffered
        bound = self.worker.bounds.session_messages
        if len(self.inflight) >= bound and self.inflight[-bound][0] > taken:
            return 0
        return self.worker.socket_bytes - buffered

    def watch_room(self) -> bool:
        """Leave memory mode if the socket is full; return whether it is."""
        if self._room_bytes():
            return False
        self.memory_mode = False
        self._full()
        return True

    def _judge(self) -> None:
        """Check the room after a large write, once the kernel has taken what it could."""
        if self.end_reason is None:
            self.watch_room()

    def _half_free(self) -> bool:
        """Check whether there is room for a page; with less, most of it would be read again."""
        return self._room_bytes() * 2 >= self.worker.socket_bytes

    def _full(self) -> None:
        if self.full_since is None:
            self.full_since = self.worker.loop.time()
            self.full_bytes = self.socket.buffered_bytes()
            self.worker.full_sessions[self] = None
            self.worker.metrics.sessions_filled += 1

    def writable(self) -> None:
        """Continue a catch-up that waits for room, as the socket accepted bytes."""
        if self.full_since is None or self.sender is None:
            return
        if self._half_free():
            self.full_since = None
            self.worker.full_sessions.pop(self, None)
            self.read()
            self.sender.room()
        elif (buffered := self.socket.buffered_bytes()) < self.full_bytes:
            self.full_bytes = buffered
            self.full_since = self.worker.loop.time()  # slow, but not stuck

    # --- from the stream ----------------------------------------------------------------------

    def catch_up(self) -> None:
        """Deliver from the stream only, until a short page."""
        self.memory_mode = False
        self.read()

    def read(self) -> None:
        """Read the stream from `read_up_to`; a wake while a read is in flight repeats it."""
        if not self.live or self.end_reason is not None:
            return
        if self._reading:
            self._read_again = True
            return
        if self.full_since is not None:
            return
        commit = self.worker.commit
        if not commit.pipe.usable:
            self.memory_mode = False
            self._read_again = True  # `redis_usable` reads
            return
        self._reading = True
        self._read_again = False
        count = self._pages.entries(self._room_bytes())
        start = self.read_up_to if self.read_up_to == START else b"(" + self.read_up_to
        commit.submit(
            resp.command("XRANGE", self.destination.stream, start, "+", "COUNT", count),
            lambda reply: self._page_read(reply, count),
        )

    def _page_read(self, reply: Any, count: int) -> None:
        self._reading = False
        if self.end_reason is not None:
            return
        if isinstance(reply, LinkLost):
            self.memory_mode = False
            self._read_again = True  # `redis_usable` reads
            return
        if isinstance(reply, hiredis.ReplyError):
            self.worker.stream_unreadable(self, reply)
            return
        more = len(reply) >= count
        if reply:
            self._pages.came(len(reply))
            more = not self._take(reply) or more
        if more:
            self.memory_mode = False
            if self._half_free():
                self.read()
            else:
                self.worker.loop.call_soon(self._read_on)
            return
        if self.had is not None:
            rewind.settle(self)
        if not self.memory_mode:
            self.memory_mode = True
            self.worker.caught_up(self)
        if self._read_again:
            self.read()

    def _read_on(self) -> None:
        """Continue with the stream now or when there is room; called a turn after a large write."""
        if self.end_reason is not None:
            return
        if self._half_free():
            self.read()
        else:
            self._full()

    def _take(self, entries: list[Any]) -> bool:
        """Deliver a page, and return whether all of it was taken."""
        known = self._known_ids()
        room = self._room_bytes()
        payloads: list[bytes] = []
        envelopes: list[Envelope] = []
        ids: list[bytes] = []
        total = 0
        complete = True
        for entry_id, fields in entries:
            if entry_id in known and (self.had is None or rewind.is_had(self, entry_id, fields)):
                self.read_up_to = entry_id
                continue
            payload = entry_payload(fields)
            envelope = None if payload is None else readable(payload)
            if payload is None or envelope is None:
                self.worker.unreadable_entry(self, entry_id)
                self.discard(entry_id)
            elif has_expired(envelope, entry_id, self.worker.wall_s()):
                self.worker.expire(envelope)
                self.discard(entry_id)
            elif payloads and total + len(payload) > room:
                complete = False
                break
            else:
                payloads.append(payload)
                envelopes.append(envelope)
                ids.append(entry_id)
                total += len(payload)
            self.read_up_to = entry_id
        if payloads:
            self.took += len(payloads)
            self.took_bytes += total
            self._write(payloads, ids, envelopes)
            if self.memory_mode:  # from another worker, without a wait
                stored_s = int(ids[0].partition(b"-")[0]) / 1000
                self.worker.metrics.delivered(self.worker.wall_s() - stored_s, len(payloads))
            self.worker.watch()  # there may be no later batch that checks acknowledgements
            self._pages.took(len(payloads), total)
        return complete

    def _known_ids(self) -> Set[bytes] | dict[bytes, Any]:
        if self.had is not None:
            return self.had
        if not (self.inflight or self.removals or self.removing):
            return NO_ENTRIES
        known = {entry_id for _, entry_id, _ in self.inflight}
        known.update(entry_id for entry_id, _ in self.removals)
        known.update(self.removing)
        return known

    def discard(self, entry_id: bytes) -> None:
        """Remove an entry that is not delivered."""
        self.took += 1
        self.removals.append((entry_id, 0))
        self.worker.commit.remove(self)
        self.worker.commit.schedule()

    def unread(self, entries: list[Any]) -> Set[bytes]:
        """Return the entries that this session has not delivered and is not about to read."""
        if not entries or not self.memory_mode or self._reading:
            return NO_ENTRIES
        known = self._known_ids()
        return {entry_id for entry_id, _ in entries if entry_id not in known}

    def rewind(self) -> None:
        """Read everything again except what this connection had, as Redis went back in time."""
        self.had = rewind.take_what_it_had(self)
        self.read_up_to = START
        self.memory_mode = False
        self._read_again = True

    # --- removal ------------------------------------------------------------------------------

    def look(self, now: float) -> bool:
        """Check what the peer has acknowledged, unless it is too early for that.

        Returns:
            Whether the socket is making progress; if not, it has stalled.
        """
        if now >= self.look_at:
            if self.confirm():
                self.look_delay_s = LOOK_S
            else:
                self.look_delay_s = min(LONGEST_LOOK_S, 2 * self.look_delay_s)
                self.look_at = now + self.look_delay_s
        return self.look_delay_s <= STALLED_S

    def confirm(self) -> bool:
        """Turn acknowledged entries into removals; return whether there was progress."""
        acknowledged = self.socket.acknowledged()
        inflight = self.inflight
        if not inflight or inflight[0][0] > acknowledged:
            return False
        removals = self.removals
        before = len(removals)
        for end, entry_id, content in inflight:
            if end > acknowledged:
                break
            removals.append((entry_id, content))
        del inflight[: len(removals) - before]
        if self.worker.following:
            self.worker.recorder.acknowledged(self, removals[before:])
        self.worker.commit.remove(self)
        if self.full_since is not None:
            self.full_since = self.worker.loop.time()
            self.writable()  # it may have been full because of too many messages in flight
        return True

    def take_removals(self) -> list[Removal]:
        """Pass the removals on to a batch."""
        removals, self.removals = self.removals, []
        self.removing.update(removals)
        return removals

    def removals_done(self, removals: list[Removal]) -> None:
        """Record that Redis has removed these entries."""
        for entry_id, _ in removals:
            self.removing.pop(entry_id, None)
        if self.worker.following:
            self.worker.recorder.removed(self, removals)

    def removals_lost(self, removals: list[Removal]) -> None:
        """Send removals again whose outcome is unknown, unless Redis went back in time."""
        for entry_id, content in removals:
            if self.removing.pop(entry_id, None) is not None:
                self.removals.append((entry_id, content))

"""Draining one shard of the outbox, from taking its lease to giving it back.

New messages are read as they come, and sorted into lanes, one for each destination twin. What can
be sent soon is kept in memory; of what has to wait only the id, the deadline and the size are, and
it is read again when its turn comes. So a relay that is slow or away holds up neither the reading
nor the messages of others.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import hiredis
from google.protobuf.message import DecodeError

from proto.federation.delivery import choose, deadline_s
from proto.rmb import notices
from proto.rmb.address import from_message
from proto.rmb.errors import AddressError, BoundError
from proto.rmb.reasons import MessageReason
from proto.rmb.types_pb2 import Envelope
from relay.federation.lane import Entry, Lane, Stage
from relay.federation.lease import Lease
from relay.queues import keys, resp
from relay.queues.pipe import LinkLost
from relay.twins.cache import MISSING, TwinLookupError

if TYPE_CHECKING:
    from relay.federation.sender import Sender
    from relay.twins.source import TwinRecord

log = logging.getLogger(__name__)

LIFE_S: Final = 60.0
"""A drainer ends after so long: whatever it got wrong, its successor begins anew."""
IDLE_S: Final = 10.0
"""It ends sooner when nothing comes for so long."""
LOOK_S: Final = 0.25
"""How often it is seen whether it is time to leave."""
SETTLED_S: Final = 5.0
"""The last messages are settled by then, or left to the successor."""
PAGE_MESSAGES: Final = 512
PAGE_BYTES: Final = 4 << 20
"""Of one read, by the size of those before."""
WINDOW_MESSAGES: Final = 4096
WINDOW_BYTES: Final = 16 << 20
"""Payloads in memory; above, the reading pauses."""
STALL_S: Final = 0.1
"""It pauses so long at most: then those who do not get on give their place up."""
MAX_TRACKED: Final = 100_000
"""Messages known by their ids; above, the reading waits until some are settled."""
LOAD_MESSAGES: Final = 64
LOAD_BYTES: Final = 1 << 20
"""Of one lane, read again at once."""
MAX_LANES: Final = 10_000
"""Kept for the relay they used last; those with messages are kept anyway."""
ENDING: Final = 64
"""Messages at a time that are read again to be given up."""
LOOK_AGAIN_S: Final = 1.0
"""The source of twins is away: the next look."""
SOON_S: Final = 1.0
"""Messages that wait longer are not kept in memory meanwhile."""
MAX_DOUBTFUL: Final = 10_000
LONGEST_WAIT_S: Final = 60.0


class Shard:
    """One shard, for the life of one drainer.

    Attributes:
        number: of the shard.
        prefix: of the ids of its deliveries.
        lanes: by destination twin.
        stream: the shard's stream in Redis.
        read_up_to: id of the last message that was read.
        settler: takes settled messages out of the outbox.
    """

    def __init__(self, sender: Sender, number: int) -> None:
        self.number = number
        self.prefix = b"%d-" % number
        self.lanes: dict[int, Lane] = {}
        self.settler = sender.settler
        self.leaving = False
        self.stream = keys.outbox(number).encode()
        self.read_up_to = b"0-0"
        self._sender = sender
        self._lease = Lease(sender.pipe, number)
        self._news = 0.0
        self._full_since: float | None = None
        self._doubt_all = False
        self._mean_bytes = float(PAGE_BYTES // 32)
        self._tracked = 0
        self._loaded = 0
        self._loaded_bytes = 0
        self._answered = asyncio.Event()
        self._next_deadline = float("inf")
        self._timer: asyncio.TimerHandle | None = None
        self._to_end: deque[tuple[Entry, MessageReason | None]] = deque()
        self._ending = 0

    # --- life ---------------------------------------------------------------------------------

    async def drain(self) -> bool:
        """Delivers what comes, for a while.

        Returns:
            Whether there is something left for a successor.

        Raises:
            LinkLost: Redis went away at the start or at the end.
        """
        if not await self._lease.take():
            return False
        self._doubt_all = self._lease.doubtful_up_to != b"0-0"
        self._sender.reader.add(self)
        try:
            await self._live()
        finally:
            await self._leave()
        return bool(await self._sender.pipe.call("XLEN", self.stream))

    async def _live(self) -> None:
        started = self._news = time.monotonic()
        while self._lease.held and not self._sender.stopping():
            now = time.monotonic()
            if now - started >= LIFE_S or (not self._tracked and now - self._news >= IDLE_S):
                return
            await asyncio.sleep(LOOK_S)

    async def _leave(self) -> None:
        self.leaving = True
        if self._timer is not None:
            self._timer.cancel()
        for lane in self.lanes.values():
            lane.wake()
        self._sender.reader.remove(self)
        try:
            async with asyncio.timeout(self._sender.options.timeout_s + SETTLED_S):
                while any(lane.sending for lane in self.lanes.values()):
                    self._answered.clear()
                    await self._answered.wait()
                await self.settler.quiet(self.number)
        except TimeoutError:
            log.warning("federation shard %d: not everything was settled in time", self.number)
        doubtful = [
            entry.id
            for lane in self.lanes.values()
            for entry in lane.entries
            if entry.doubtful and not entry.over
        ]
        if (
            len(doubtful) <= MAX_DOUBTFUL
            and not self.settler.waiting(self.number)
            and self._lease.held
        ):
            await self._lease.release(doubtful)
        else:
            self._lease.abandon()

    def may_send(self) -> bool:
        """Whether messages of this shard may be sent now."""
        return not self.leaving and self._lease.held

    # --- reading ------------------------------------------------------------------------------

    def takes(self) -> bool:
        """Whether more messages are to be read now."""
        if self._tracked >= MAX_TRACKED:
            return False
        if self._loaded < WINDOW_MESSAGES and self._loaded_bytes < WINDOW_BYTES:
            self._full_since = None
            return True
        now = time.monotonic()
        if self._full_since is None:
            self._full_since = now
        if now - self._full_since < STALL_S:
            return False
        for lane in self.lanes.values():
            self._unload(lane)
        return True

    def page(self) -> int:
        """How many messages are read at once."""
        return max(1, min(PAGE_MESSAGES, int(PAGE_BYTES / self._mean_bytes)))

    def received(self, entries: list[Any]) -> None:
        """Sorts new messages into their lanes."""
        if self.leaving:
            return
        self._news = time.monotonic()
        lease = self._lease
        retention_s = self._sender.options.retention_s
        parse = Envelope.FromString
        awake: dict[Lane, None] = {}
        size_bytes = 0
        for entry_id, fields in entries:
            if fields is None:
                continue
            # In the order workers write them, without the one that only a repeat has; names are
            # compared all the same where that does not hold.
            if len(fields) == 6 and fields[0] == b"_" and fields[2] == b"from":
                payload = fields[1]
                origin = fields[3].decode("utf-8", "replace")
                account = fields[5].decode("utf-8", "replace")
            else:
                payload, origin, account = _values(fields)
            stored_at = int(entry_id.partition(b"-")[0]) / 1000
            try:
                envelope = parse(payload)
                twin = envelope.destination.twin
                deadline = deadline_s(
                    envelope.timestamp, envelope.expiration, stored_at, retention_s
                )
            except DecodeError:
                twin, deadline = 0, stored_at + retention_s
            entry = Entry(
                entry_id,
                stored_at,
                deadline,
                payload,
                origin,
                account,
                entry_id in lease.doubtful or self._from_before(entry_id),
            )
            size_bytes += len(payload)
            self._tracked += 1
            self._loaded += 1
            self._loaded_bytes += len(payload)
            if not twin:
                self.end(entry, MessageReason.UNPARSABLE)
                continue
            lane = self.lanes.get(twin) or self._new_lane(twin)
            waits = lane.stage is Stage.WAITING
            if waits or (lane.entries and lane.entries[-1].payload is None):
                self._unloaded(entry)
            lane.entries.append(entry)
            if deadline < self._next_deadline:
                self._expect(deadline)
            if lane.stage is Stage.IDLE:
                awake[lane] = None
        self.read_up_to = entries[-1][0]
        self._mean_bytes = max(256.0, size_bytes / len(entries), self._mean_bytes / 2)
        for lane in awake:
            self.advance(lane)

    def _from_before(self, entry_id: bytes) -> bool:
        """Whether it may have been sent by a drainer that died."""
        if self._doubt_all:
            self._doubt_all = _place(entry_id) <= _place(self._lease.doubtful_up_to)
        return self._doubt_all

    def _new_lane(self, twin: int) -> Lane:
        if len(self.lanes) >= MAX_LANES:
            for number, lane in list(self.lanes.items()):
                if not lane.entries and lane.stage is Stage.IDLE:
                    del self.lanes[number]
        lane = self.lanes[twin] = Lane(self, twin)
        return lane

    # --- what a lane does next ----------------------------------------------------------------

    def advance(self, lane: Lane) -> None:
        """Looks at what is next for a lane that is not under way anywhere."""
        lane.wake()
        lane.stage = Stage.IDLE
        if self.leaving:
            self._answered.set()
            return
        if not lane.entries:
            return
        sender, now = self._sender, self._sender.clock()
        while (head := lane.head()) is not None and head.deadline <= now:
            self.end(head, MessageReason.EXPIRED)
        if head is None:
            return
        record = sender.twins.get(lane.twin)
        if record is lane.record and lane.destination is not None and lane.destination.partner.open:
            # Nothing has changed since its relay took the last message.
            lane.destination.enqueue(lane)
        elif record is MISSING:
            self._fetch(lane, self._look_up(lane))
        elif record is None:
            self._end_all(lane, MessageReason.UNKNOWN_TWIN)
        elif not record.relays:
            self._end_all(lane, MessageReason.NO_RELAY)
        elif not sender.own_domains.isdisjoint(record.relays):
            self._end_all(lane, None)
        else:
            self._choose(lane, record, now)

    def look_again(self) -> None:
        """Some relay may be tried earlier than lanes wait for."""
        for lane in list(self.lanes.values()):
            if lane.stage is Stage.WAITING:
                self.advance(lane)

    def _choose(self, lane: Lane, record: TwinRecord, now: float) -> None:
        sender = self._sender
        relays = record.relays
        partners = [sender.partners.get(relay) for relay in relays]
        if not all(partner.loaded for partner in partners):
            sender.ranks.order(relays, now)  # asked first, so the answer is there first
            self._fetch(lane, sender.partners.load(p for p in partners if not p.loaded))
            return
        if all(partner.blocked for partner in partners):
            self._end_all(lane, MessageReason.REMOTE_4XX)
            return
        if len(partners) == 1:
            candidates = [lane.candidate(partners[0], now)]
        else:
            found = {partner.domain: lane.candidate(partner, now) for partner in partners}
            candidates = [found[relay] for relay in sender.ranks.order(relays, now)]
        sticky = lane.destination.partner.domain if lane.destination is not None else None
        choice = choose(candidates, sticky, now)
        if choice.relay is None:
            if choice.at - now > SOON_S:
                self._unload(lane)
            lane.wait(min(choice.at - now, LONGEST_WAIT_S), self.advance)
        else:
            lane.record = record
            sender.destination(choice.relay).enqueue(lane)

    def _fetch(self, lane: Lane, work: Any) -> None:
        """Has something fetched, and looks again then."""
        lane.stage = Stage.FETCHING

        async def fetch() -> None:
            try:
                await work
            except (LinkLost, TwinLookupError, hiredis.ReplyError) as error:
                log.debug("federation to twin %d waits: %s", lane.twin, error)
                lane.wait(LOOK_AGAIN_S, self.advance)
            else:
                self.advance(lane)

        self._sender.spawn(fetch())

    async def _look_up(self, lane: Lane) -> None:
        await self._sender.twins.look_up(lane.twin)

    # --- ends ---------------------------------------------------------------------------------

    def accepted(self, entry: Entry) -> None:
        """Another relay took the message."""
        self._gone(entry)
        self.settler.done(self.number, entry)

    def end(self, entry: Entry, reason: MessageReason | None) -> None:
        """A message is given up, or (without a reason) delivered to a session of this relay."""
        entry.over = True
        self._to_end.append((entry, reason))
        self._end_some()

    def _end_all(self, lane: Lane, reason: MessageReason | None) -> None:
        for entry in list(lane.entries):
            if not entry.over:
                self.end(entry, reason)
        lane.entries.clear()

    def _end_some(self) -> None:
        while self._to_end and self._ending < ENDING:
            entry, reason = self._to_end.popleft()
            if entry.payload is not None:
                self._end(entry, reason, entry.payload)
                continue
            self._ending += 1

            def read(reply: Any, entry: Entry = entry, reason: Any = reason) -> None:
                self._ending -= 1
                payload = _payload(reply)
                if payload is not None:
                    self._end(entry, reason, payload)
                elif isinstance(reply, Exception):
                    self._to_end.append((entry, reason))
                    self._sender.loop.call_later(LOOK_AGAIN_S, self._end_some)
                    return
                self._end_some()

            self._sender.pipe.submit(self._range(entry), read)

    def _end(self, entry: Entry, reason: MessageReason | None, payload: bytes) -> None:
        notice, deliver_to = None, ""
        try:
            envelope = Envelope.FromString(payload)
            if reason is None:
                deliver_to = keys.key_text(from_message(envelope.destination))
            elif entry.origin:
                asker = keys.parse_key(entry.origin)
                notice = notices.refusal(envelope, reason, int(self._sender.clock()), asker)
        except (DecodeError, AddressError, BoundError):
            reason = reason or MessageReason.UNPARSABLE
        if reason is not None:
            self._sender.count_end(reason)
        self._gone(entry)
        self.settler.finish(self.number, entry, reason.value if reason else "", notice, deliver_to)

    def _gone(self, entry: Entry) -> None:
        self._tracked -= 1
        if entry.payload is not None:
            self._unloaded(entry)
        if self._full_since is not None and self._loaded < WINDOW_MESSAGES // 2:
            self._full_since = None
            self._sender.reader.look()

    # --- payloads -----------------------------------------------------------------------------

    def load(self, lane: Lane, then: Callable[[], None]) -> None:
        """Reads the first messages of a lane again, as far as they are not in memory."""
        wanted: list[Entry] = []
        size_bytes = 0
        for entry in lane.entries:
            if entry.over or entry.payload is not None:
                continue
            size_bytes += entry.size_bytes
            if wanted and (len(wanted) >= LOAD_MESSAGES or size_bytes > LOAD_BYTES):
                break
            wanted.append(entry)
        last = wanted[-1]

        def read(entry: Entry, reply: Any) -> None:
            payload = _payload(reply)
            if payload is not None and entry.payload is None:
                entry.payload = payload
                self._loaded += 1
                self._loaded_bytes += entry.size_bytes
            elif reply == []:
                entry.over = True  # somebody else removed it
                self._tracked -= 1
            if entry is last:
                if isinstance(reply, Exception):
                    self._sender.loop.call_later(LOOK_AGAIN_S, then)
                else:
                    then()

        for entry in wanted:
            self._sender.pipe.submit(self._range(entry), partial(read, entry))

    def _unload(self, lane: Lane) -> None:
        """Keeps only what a lane is sending."""
        sending = set(map(id, lane.sending))
        for entry in lane.entries:
            if entry.payload is not None and not entry.over and id(entry) not in sending:
                self._unloaded(entry)

    def _unloaded(self, entry: Entry) -> None:
        entry.payload = None
        self._loaded -= 1
        self._loaded_bytes -= entry.size_bytes

    def _range(self, entry: Entry) -> bytes:
        return resp.command("XRANGE", self.stream, entry.id, entry.id)

    # --- expiry -------------------------------------------------------------------------------

    def _expect(self, deadline: float) -> None:
        self._next_deadline = deadline
        if self._timer is not None:
            self._timer.cancel()
        delay_s = max(0.0, deadline - self._sender.clock())
        self._timer = self._sender.loop.call_later(min(delay_s, LIFE_S), self._sweep)

    def _sweep(self) -> None:
        """Gives up what expired, wherever it waits; a request under way ends by itself then."""
        now = self._sender.clock()
        following = float("inf")
        for lane in self.lanes.values():
            sending = set(map(id, lane.sending))
            for entry in lane.entries:
                if entry.over:
                    continue
                if entry.deadline > now:
                    following = min(following, entry.deadline)
                elif id(entry) not in sending:
                    self.end(entry, MessageReason.EXPIRED)
        self._next_deadline = float("inf")
        if following < float("inf"):
            self._expect(following)


def _values(fields: list[bytes]) -> tuple[bytes, str, str]:
    """Envelope, origin and account of an entry."""
    values = dict(zip(fields[::2], fields[1::2], strict=True))
    origin, account = values.get(b"from", b""), values.get(b"for", b"")
    return (
        values.get(b"_", b""),
        origin.decode("utf-8", "replace"),
        account.decode("utf-8", "replace"),
    )


def _place(entry_id: bytes) -> tuple[int, int]:
    """An id of a stream, to be compared."""
    moment, _, serial = entry_id.partition(b"-")
    return int(moment), int(serial)


def _payload(reply: Any) -> bytes | None:
    """The envelope in what XRANGE replied for one id."""
    if not isinstance(reply, list) or not reply:
        return None
    fields = reply[0][1]
    values = dict(zip(fields[::2], fields[1::2], strict=True))
    payload: bytes = values.get(b"_", b"")
    return payload

"""The messages of one shard of the outbox, from being read to their end.

New messages are read as they arrive (`reader.py`) and sorted into lanes, one for each destination
twin. `window.py` manages what is in memory. This module decides what a lane does next: go to one of
its twin's relays, wait, or end.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

import hiredis

from proto.federation.delivery import choose
from proto.federation.domains import reachable
from proto.rmb.reasons import MessageReason
from redispipe.errors import LinkLost
from relay.federation.endings import Endings
from relay.federation.lane import Entry, Lane, Stage
from relay.federation.lease import Lease
from relay.federation.window import Window
from relay.queues import keys
from relay.twins.cache import MISSING, TwinLookupError

if TYPE_CHECKING:
    from relay.federation.sender import Sender
    from relay.twins.source import TwinRecord

log = logging.getLogger(__name__)

MAX_LANES: Final = 10_000
"""Number of lanes above which idle ones are dropped, with the relay they used last; lanes with
messages are kept anyway."""
SWEEP_S: Final = 0.25
"""Minimum seconds between two checks of all deadlines: with many messages a check takes a while."""
SWEEP_PAUSE: Final = 20.0
"""The same, as a multiple of the time that the check took."""
LOOK_AGAIN_S: Final = 1.0
"""Seconds until the next look-up after the source of twins was unavailable."""
SOON_S: Final = 1.0
"""Messages that wait for more than this many seconds are not kept in memory meanwhile."""
LONGEST_WAIT_S: Final = 60.0


class Shard:
    """One shard, for the life of one drainer.

    Attributes:
        number: number of the shard.
        prefix: prefix of the ids of its deliveries.
        lanes: lanes by destination twin.
        stream: the shard's stream in Redis.
        leaving: whether the drainer ends, so that nothing more is sent.
        lease: lease of this drainer.
        answered: set whenever a request ends while the drainer is leaving.
    """

    def __init__(self, sender: Sender, number: int) -> None:
        self.number = number
        self.prefix = b"%d-" % number
        self.lanes: dict[int, Lane] = {}
        self.leaving = False
        self.stream = keys.outbox(number).encode()
        self._sender = sender
        self.lease = Lease(sender.pipe, number)
        self._window = Window(sender, self.stream)
        self._endings = Endings(sender, number, self._window, self.lease)
        self.answered = asyncio.Event()
        self._news = time.monotonic()
        self._next_deadline = float("inf")
        self._prune_at = MAX_LANES
        self._timer: asyncio.TimerHandle | None = None

    # --- life ---------------------------------------------------------------------------------

    def idle_s(self) -> float:
        """Return the seconds since the last message arrived; 0 while any are left to send."""
        return 0.0 if self._window.tracked else time.monotonic() - self._news

    def begin_to_leave(self) -> None:
        """Stop sending."""
        self.leaving = True
        if self._timer is not None:
            self._timer.cancel()
        for lane in self.lanes.values():
            lane.wake()

    @property
    def sending(self) -> bool:
        """Whether a request is in flight."""
        return any(lane.sending for lane in self.lanes.values())

    def doubtful(self) -> list[bytes]:
        """Return the ids of messages that may have been accepted."""
        found = [
            entry.id
            for lane in self.lanes.values()
            for entry in lane.entries
            if entry.doubtful and not entry.over
        ]
        for lane in self.lanes.values():
            found += lane.notes.doubtful()
        return found

    def may_send(self) -> bool:
        """Check whether messages of this shard may be sent now."""
        return not self.leaving and self.lease.held

    # --- reading ------------------------------------------------------------------------------

    @property
    def read_up_to(self) -> bytes:
        """Id of the last message that was read."""
        return self._window.read_up_to

    def takes(self) -> bool:
        """Check whether more messages are to be read now."""
        return self._window.takes(self.lanes.values())

    def page(self) -> int:
        """Return the maximum number of messages to read at once."""
        return self._window.page()

    def received(self, page: list[Any]) -> None:
        """Sort new messages into their lanes."""
        if self.leaving:
            return
        self._news = time.monotonic()
        lanes, awake, broken = self.lanes, [], []
        nearest = self._next_deadline
        for twin, entry in self._window.entries(page, self.lease):
            if not twin:
                broken.append(entry)
                continue
            lane = lanes.get(twin) or self._new_lane(twin)
            if lane.entries and (
                lane.stage is Stage.WAITING or lane.notes or lane.entries[-1].payload is None
            ):
                self._window.let_go(entry)
                lane.put_off(entry)
            else:
                if not lane.entries and lane.stage is Stage.IDLE:
                    awake.append(lane)
                lane.entries.append(entry)
            if entry.deadline < nearest:
                nearest = entry.deadline
        for entry in broken:
            self._endings.end(entry, MessageReason.UNPARSABLE)
        if nearest < self._next_deadline:
            self._expect(nearest)
        for lane in awake:
            self.advance(lane)

    def _new_lane(self, twin: int) -> Lane:
        if len(self.lanes) >= self._prune_at:
            for number, lane in list(self.lanes.items()):
                if not lane.entries and lane.stage is Stage.IDLE:
                    del self.lanes[number]
            # While many twins have messages waiting, each check would find few idle lanes.
            self._prune_at = max(MAX_LANES, 2 * len(self.lanes))
        lane = self.lanes[twin] = Lane(self, twin)
        return lane

    # --- the next step of a lane --------------------------------------------------------------

    def advance(self, lane: Lane) -> None:
        """Decide what is next for a lane that has no request in flight."""
        lane.wake()
        lane.stage = Stage.IDLE
        if self.leaving:
            self.answered.set()
            return
        sender, now = self._sender, self._sender.clock()
        while (head := lane.head()) is not None and head.deadline <= now:
            self._endings.end(head, MessageReason.EXPIRED)
        if head is None:
            return
        record = sender.twins.get(lane.twin)
        if record is lane.record and lane.destination is not None and lane.destination.partner.open:
            # Nothing has changed since its relay accepted the last message.
            lane.destination.enqueue(lane)
        elif record is MISSING:
            self._fetch(lane, self._look_up(lane))
        elif record is None:
            self._end_all(lane, MessageReason.UNKNOWN_TWIN)
        elif not record.relays:
            self._end_all(lane, MessageReason.NO_RELAY)
        elif not sender.own_domains.isdisjoint(record.relays):
            self._end_all(lane, None)
        elif not reachable(record.relays):
            self._end_all(lane, MessageReason.NO_USABLE_RELAY)
        else:
            self._choose(lane, record, now)

    def sent(self, lane: Lane) -> None:
        """Handle the end of a lane's request, once accepted and refused messages are settled."""
        sent, lane.sending = lane.sending, []
        if not self.leaving:
            now = self._sender.clock()
            for entry in sent:
                if entry.deadline <= now and not entry.over:
                    self._endings.end(entry, MessageReason.EXPIRED)
        self.advance(lane)

    def look_again(self) -> None:
        """Advance waiting lanes, as some relay may be tried earlier than they expect."""
        for lane in list(self.lanes.values()):
            if lane.stage is Stage.WAITING:
                self.advance(lane)

    def _choose(self, lane: Lane, record: TwinRecord, now: float) -> None:
        sender = self._sender
        relays = reachable(record.relays)
        partners = [sender.partners.get(relay) for relay in relays]
        if not all(partner.loaded for partner in partners):
            sender.ranks.order(relays, now)  # asked first, so that the reply arrives first
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
                self._window.unload(lane)
            lane.wait(min(choice.at - now, LONGEST_WAIT_S), self.advance)
        else:
            lane.record = record
            sender.destination(choice.relay).enqueue(lane)

    def _fetch(self, lane: Lane, work: Coroutine[Any, Any, None]) -> None:
        """Run a read for a lane, then advance the lane."""
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
        """Settle a message that another relay accepted."""
        self._window.gone(entry)
        self._sender.settler.done(self.number, entry)

    def refused(self, entry: Entry) -> None:
        """End a message that another relay refused; no other relay is tried."""
        self._endings.end(entry, MessageReason.REMOTE_4XX)

    def load(self, lane: Lane, then: Callable[[], None]) -> None:
        """Read those of a lane's first messages again that are not in memory."""
        self._window.load(lane, then)

    def _end_all(self, lane: Lane, reason: MessageReason | None) -> None:
        lane.recall(len(lane.notes))
        for entry in lane.entries:
            if not entry.over:
                self._endings.end(entry, reason)
        lane.entries.clear()

    # --- expiry -------------------------------------------------------------------------------

    def _expect(self, deadline: float) -> None:
        self._next_deadline = deadline
        if self._timer is not None:
            self._timer.cancel()
        delay_s = max(0.0, deadline - self._sender.clock())
        self._timer = self._sender.loop.call_later(min(delay_s, LONGEST_WAIT_S), self._sweep)

    def _sweep(self) -> None:
        """Give up expired messages, wherever they wait.

        Messages in flight may still be accepted: their expiry is handled when the request ends.
        """
        now, started = self._sender.clock(), time.monotonic()
        following = float("inf")
        for lane in self.lanes.values():
            sending = set(map(id, lane.sending))
            for entry in lane.entries:
                if entry.over:
                    continue
                if entry.deadline > now:
                    following = min(following, entry.deadline)
                elif id(entry) not in sending:
                    self._endings.end(entry, MessageReason.EXPIRED)
            for entry in lane.expired_notes(now):
                self._endings.end(entry, MessageReason.EXPIRED)
            following = min(following, lane.notes.nearest)
        self._next_deadline = float("inf")
        if following < float("inf"):
            pause_s = max(SWEEP_S, SWEEP_PAUSE * (time.monotonic() - started))
            self._expect(max(following, now + pause_s))

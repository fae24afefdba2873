"""How a worker decides about messages of partner relays, once their bytes are received.

    examine   is it an envelope with a destination?                 `proto.federation.inbound`
    look up   destination and source twin, mostly from the cache
    check     the destination belongs here, the source has signed   `verification`
    repeats   was this message stored before?                       `inbound_memory`
    admit     limits, and room in the queue                         `inbound_admission`
    store     the group commit, as for a message of a session here

*admit* and *store* take the messages of a request in order, so what a session of another relay
sends arrives in the order in which it was sent. A message that was passed to the group commit is
answered when the commit is decided, however long that takes: if it were refused before that, it
would be sent, and stored, twice.

A batch of 512 would block the event loop for some 20 ms. Each step therefore works in slices and
yields between them. While the signatures of one slice are checked the next slice is examined, and
slices already checked are stored and delivered while later ones are checked. Where something can be
charged to a source, Redis is asked for repeats meanwhile. A message whose client has disconnected
is not stored, unless its commit is already in flight. Messages of the single form that arrive in
one turn of the loop, or while others are decided, share all steps as the messages of one request
do, if they wait for nothing but their check and the commit.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from proto.federation.answers import REPEATED, TAKEN, InboundReason
from proto.federation.inbound import is_too_old
from proto.rmb.reasons import MessageReason
from proto.rmb.routing import Facts, Step, Twin, route
from relay.federation.arrival import Arrival
from relay.federation.inbound_admission import InboundAdmission
from relay.federation.inbound_memory import Memory, look
from relay.federation.inbound_partners import InboundPartners, Partner
from relay.federation.verification import Check, Verification
from relay.queues import keys
from relay.twins.cache import MISSING, TwinLookupError
from relay.twins.look_ups import LookUps
from relay.twins.source import TwinRecord

if TYPE_CHECKING:
    from relay.queues.batch import Batch
    from relay.sessions.worker import Worker

log = logging.getLogger(__name__)

SLICE: Final = 64
"""Messages of a request that one turn of the loop examines, which takes less than a millisecond."""
LARGE_BYTES: Final = 256 << 10
"""Size from which a message is hashed in a thread, as that takes half a millisecond or more."""

Slices = list[list[Arrival]]
Records = dict[int, TwinRecord | TwinLookupError | None]


class _Commits:
    """Waits until the batches with messages of one request are decided."""

    def __init__(self) -> None:
        self._undecided = 0
        self._done = asyncio.Event()

    def watch(self, batch: Batch) -> None:
        self._undecided += 1
        batch.waiters.append(self)

    def batch_done(self) -> None:
        self._undecided -= 1
        self._done.set()

    async def decided(self) -> None:
        """Wait until all watched batches are decided."""
        while self._undecided:
            self._done.clear()
            await self._done.wait()


class Intake:
    """The part of a worker that decides about messages of partner relays.

    Attributes:
        memory: marks of accepted messages.
        under_way: number of requests that are being decided.
    """

    def __init__(
        self,
        worker: Worker,
        verification: Verification,
        partners: InboundPartners,
        look_ups: LookUps,
    ) -> None:
        self.memory = Memory()
        self.under_way = 0
        self._worker = worker
        self._verification = verification
        self._partners = partners
        self._admission = InboundAdmission(worker)
        self._look_ups = look_ups

    def at_hand(self, arrival: Arrival) -> bool:
        """Check whether a message's signature can be checked without any look-up before.

        The message counts as being decided from now on, so that a repeat cannot overtake it while
        it waits to be decided with others. The caller must call `take` with it in any case.
        """
        self._examine(arrival)
        if not arrival.open:
            return True
        if len(arrival.payload) >= LARGE_BYTES:
            return False
        self._begin(arrival)
        twins = self._worker.twins
        source = arrival.key[0]
        return (
            twins.get(arrival.destination[0]) is not MISSING
            and (not source or twins.get(source) is not MISSING)
            and not arrival.fail_fast
        )

    async def take(self, arrivals: list[Arrival], *, in_order: bool = True) -> None:
        """Decide about messages; afterwards each has its `answer`.

        Args:
            arrivals: messages of one request, in the order they were sent, or of several requests.
            in_order: whether, after a temporary refusal, later messages to the same twin are
                refused.
        """
        self.under_way += 1
        try:
            slices = [arrivals[at : at + SLICE] for at in range(0, len(arrivals), SLICE)]
            for part in slices:
                for arrival in part:
                    if not arrival.examined:
                        self._examine(arrival)
                    if arrival.begun or not arrival.open:
                        continue
                    if len(arrival.payload) >= LARGE_BYTES and not arrival.partner.trusted:
                        await asyncio.to_thread(arrival.hash)
                    self._begin(arrival)
                if part is not slices[-1]:
                    await asyncio.sleep(0)
            asked = self._ask_for_repeats(_open(arrivals))
            records = await self._records(_open(arrivals))
            checks = await self._check(slices, records)
            _settle_repeats(arrivals, await asked)
            await self._store(slices, checks, in_order)
        finally:
            self.memory.under_way.difference_update(each.mark for each in arrivals if each.begun)
            self.under_way -= 1

    def _examine(self, arrival: Arrival) -> None:
        worker = self._worker
        arrival.examine(worker.envelope_bounds)
        if arrival.open and arrival.key[0]:
            retention_s = worker.commit.policy.retention_s
            if is_too_old(arrival.timestamp, arrival.expiration, worker.wall_s(), retention_s):
                arrival.refuse(InboundReason.TOO_OLD)

    # --- repeats ------------------------------------------------------------------------------

    def _begin(self, arrival: Arrival) -> None:
        arrival.note_mark()
        under_way = self.memory.under_way
        if arrival.mark in under_way:
            arrival.refuse(InboundReason.UNDER_WAY)
        else:
            under_way.add(arrival.mark)
            arrival.begun = True

    def _ask_for_repeats(self, arrivals: list[Arrival]) -> asyncio.Future[set[bytes] | None]:
        """Ask Redis which marks were stored lately; the future's result is `None` if unknown.

        It asks only about messages that might be refused or charged for a queue: for all others the
        script that stores messages finds repeats.
        """
        worker = self._worker
        answered: asyncio.Future[set[bytes] | None] = worker.loop.create_future()
        size_bytes = sum([len(arrival.payload) for arrival in arrivals])
        now_s = worker.wall_s()
        marks = [
            arrival.mark
            for arrival in arrivals
            if self._is_judged(arrival, len(arrivals), size_bytes, now_s)
        ]
        if marks:
            look(marks, now_s, worker.commit.submit, partial(_settle, answered))
        else:
            answered.set_result(set())
        return answered

    def _is_judged(self, arrival: Arrival, messages: int, size_bytes: int, now_s: float) -> bool:
        """Check whether a limit may refuse the message, or a waiting queue be charged for it.

        What counts for a limit that is not close is taken back if a message turns out to be a
        repeat (`Arrival.not_stored`).

        Args:
            arrival: one message of a request.
            messages: number of messages in the request; all may have one source.
            size_bytes: size of all of them, in bytes.
            now_s: unix time.
        """
        worker = self._worker
        source = arrival.key[0]
        if not source or not worker.meters.is_roomy(source, messages, size_bytes, now_s):
            return True
        queue = worker.destinations.get(arrival.destination)
        if queue is None or (queue.session is None and not queue.present):
            return True
        return worker.commit.policy.counts_shares(queue.queued, queue.queued_bytes)

    # --- twins --------------------------------------------------------------------------------

    async def _records(self, arrivals: list[Arrival]) -> Records:
        """Return the records of the twins concerned, looking up together those not in the cache."""
        worker = self._worker
        records: Records = {}
        missing: dict[int, str] = {}  # with the place that asks
        for arrival in arrivals:
            for twin in (arrival.destination[0], arrival.key[0]):
                if twin in records or not twin:
                    continue
                record = worker.twins.get(twin)
                if record is MISSING:
                    missing[twin] = arrival.partner.place
                records[twin] = None if record is MISSING else record
        if missing:
            found = await asyncio.gather(*(self._look_up(*each) for each in missing.items()))
            records.update(zip(missing, found, strict=True))
        return records

    async def _look_up(self, twin: int, place: str) -> TwinRecord | TwinLookupError | None:
        try:
            return await self._look_ups.look_up(twin, place)
        except TwinLookupError as error:
            log.debug("twin %d cannot be looked up: %s", twin, error)
            return error

    async def _check(self, slices: Slices, records: Records) -> list[asyncio.Task[None] | None]:
        """Check everything but the signatures, whose checks it starts, one task for each slice."""
        checks: list[asyncio.Task[None] | None] = []
        for part in slices:
            for arrival in part:
                if arrival.open:
                    self._place(arrival, records)
            unproved = [each for each in _open(part) if not each.partner.trusted]
            check = None
            if unproved and len(slices) == 1:
                await self._verify(unproved, records)
            elif unproved:
                check = self._worker.loop.create_task(self._verify(unproved, records))
            checks.append(check)
            if part is not slices[-1]:
                await asyncio.sleep(0)
        return checks

    def _place(self, arrival: Arrival, records: Records) -> None:
        """Refuse a message whose destination is not here, or whose source may not send here."""
        worker = self._worker
        key, source = arrival.destination, arrival.key[0]
        destination = worker.destinations.get(key)
        if destination is None or destination.session is None:
            record = records[key[0]]
            if isinstance(record, TwinLookupError):
                arrival.refuse(InboundReason.LOOK_UP_FAILED)
                return
            banned = worker.router.banned
            facts = Facts(
                guest=keys.key_text(key) in worker.guests.everywhere,
                known=True,
                twin=None if record is None else Twin(record.relays, key[0] in banned),
            )
            step, reason = route(facts, worker.domains)
            if reason is not None:
                arrival.refuse(reason)
                return
            if step is Step.FEDERATE:
                arrival.refuse(MessageReason.NOT_HERE)
                return
        if not source:
            return
        record = records[source]
        if isinstance(record, TwinLookupError):
            if not arrival.partner.trusted:
                arrival.refuse(InboundReason.LOOK_UP_FAILED)
        elif record is None:
            arrival.refuse(InboundReason.UNKNOWN_SOURCE)
        elif source in worker.router.banned:
            arrival.refuse(MessageReason.BANNED)
        elif self._partners.blocks(record.relays):
            arrival.refuse(InboundReason.BLOCKED)
        else:
            arrival.relays = record.relays

    async def _verify(self, arrivals: list[Arrival], records: Records) -> None:
        checked: list[Arrival] = []
        checks: list[Check] = []
        shares = self._verification.shares
        try:
            for arrival in arrivals:
                record = records.get(arrival.key[0])
                # An error made by a relay has no source, and therefore no signature.
                if not isinstance(record, TwinRecord) or not arrival.open:
                    continue
                if not shares.take(arrival.partner.place):
                    arrival.refuse(InboundReason.CHECKS_FULL)
                    continue
                checked.append(arrival)
                checks.append((record.account, arrival.digest, arrival.signature))
            verdicts = await self._verification.verify(checks)
        finally:
            for arrival in checked:
                shares.give(arrival.partner.place)
        for arrival, fits in zip(checked, verdicts, strict=True):
            if not fits:
                unsettled = arrival.partner.unsettled
                arrival.refuse(InboundReason.STARTING if unsettled else MessageReason.BAD_SIGNATURE)

    async def _ask_presence(self, arrivals: list[Arrival]) -> None:
        """Refuse fail-fast messages whose session is held by no worker.

        Redis is asked only about sessions that this worker does not hold.
        """
        worker = self._worker
        asked: dict[keys.SessionKey, asyncio.Future[bool]] = {}
        urgent: list[Arrival] = []
        for arrival in arrivals:
            if not arrival.fail_fast:
                continue
            destination = worker.destination(arrival.destination)
            if destination.session is not None or destination.text in worker.guests.everywhere:
                continue
            urgent.append(arrival)
            if arrival.destination not in asked:
                asked[arrival.destination] = present = worker.loop.create_future()
                worker.router.ask_presence(destination, partial(_settle, present))
        for arrival in urgent:
            if not await asked[arrival.destination]:
                arrival.refuse(MessageReason.OFFLINE_FAILFAST)

    # --- storing ------------------------------------------------------------------------------

    async def _store(
        self, slices: Slices, checks: list[asyncio.Task[None] | None], in_order: bool
    ) -> None:
        now_s = self._worker.wall_s()
        held_back: set[int] = set()  # destination twins with a message that comes again later
        commits = _Commits()
        stored: list[Arrival] = []
        for part, check in zip(slices, checks, strict=True):
            if check is not None:
                await check
            await self._ask_presence(_open(part))
            await self._admission.find_room(_open(part))
            for arrival in stored:
                if not arrival.open:  # storage became full meanwhile
                    held_back.add(arrival.destination[0])
            stored += self._store_slice(part, held_back if in_order else None, commits, now_s)
            if part is not slices[-1]:
                await asyncio.sleep(0)
        await commits.decided()
        heard: dict[tuple[Partner, tuple[str, ...]], int] = {}
        for arrival in stored:
            if arrival.open:
                arrival.answer = TAKEN
                origin = arrival.partner, arrival.relays
                heard[origin] = heard.get(origin, 0) + 1
        for (partner, relays), count in heard.items():
            self._partners.heard(partner, relays, count)

    def _store_slice(
        self,
        arrivals: list[Arrival],
        held_back: set[int] | None,
        commits: _Commits,
        now_s: float,
    ) -> list[Arrival]:
        worker = self._worker
        stored: dict[Batch, list[Arrival]] = {}
        for arrival in arrivals:
            twin = arrival.destination[0]
            if arrival.open and arrival.gone:
                arrival.refuse(InboundReason.CLIENT_GONE)
            elif arrival.open and held_back and twin in held_back:
                arrival.refuse(InboundReason.BEFORE_REFUSED)
            elif arrival.open:
                self._admission.admit(arrival, now_s)
                if arrival.open:
                    if not self.memory.has_room(now_s):
                        self.memory.under_way.discard(arrival.mark)
                        arrival.mark, arrival.begun = b"", False
                    destination = worker.destination(arrival.destination)
                    batch = worker.commit.add(destination, arrival.payload, arrival)
                    batch.mixed = True
                    if destination.session is None and not destination.present:
                        source, size_bytes = arrival.key[0], len(arrival.payload)
                        worker.room.note(batch, destination, source, size_bytes)
                    stored.setdefault(batch, []).append(arrival)
                    if worker.following and (envelope := arrival.envelope) is not None:
                        size_bytes = len(arrival.payload)
                        worker.recorder.accepted(arrival, destination, envelope, size_bytes, batch)
            if held_back is not None and arrival.comes_again:
                held_back.add(twin)
        for batch in stored:
            commits.watch(batch)
        return [arrival for members in stored.values() for arrival in members]


def _open(arrivals: Iterable[Arrival]) -> list[Arrival]:
    """Return the messages that are not decided yet."""
    return [arrival for arrival in arrivals if arrival.open]


def _settle_repeats(arrivals: Iterable[Arrival], known: set[bytes] | None) -> None:
    for arrival in _open(arrivals):
        if known is None:
            arrival.refuse(InboundReason.REDIS_AWAY)
        elif arrival.mark in known:
            arrival.answer = REPEATED


def _settle(future: asyncio.Future[Any], value: Any) -> None:
    if not future.done():  # done already if the server cancelled the request
        future.set_result(value)

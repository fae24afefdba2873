"""Admission of messages of partner relays: limits of their source, and room in their queue.

Messages count for the limit of their source twin together with those that it sends through sessions
here. Errors made by relays have no source and no signature, so any client can forge one. They have
a rate limit for each address that brings them, and a small part of each queue
(`Room.notice_refusal`).
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Final

from proto.federation.answers import InboundReason
from proto.limits.bucket import TokenBuckets
from proto.limits.window import WINDOW_S
from proto.rmb.reasons import MessageReason

if TYPE_CHECKING:
    from relay.federation.arrival import Arrival
    from relay.queues.destination import Destination
    from relay.sessions.meters import Meter
    from relay.sessions.worker import Worker

log = logging.getLogger(__name__)

ADDRESS_NOTICES_PER_S: Final = 100
"""Errors made by relays that are accepted per second from an address; trusted relays are exempt."""
NOTICES_BURST_S: Final = 10
"""Seconds of that rate that may come at once: a relay whose queues expire reports many errors."""


class InboundAdmission:
    """The limits of one worker for messages of partner relays."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._meters: dict[int, Meter] = {}  # of source twins with a limit
        self._meters_window = 0
        self._notices: TokenBuckets[str] = TokenBuckets(
            ADDRESS_NOTICES_PER_S, ADDRESS_NOTICES_PER_S * NOTICES_BURST_S
        )

    def admit(self, arrival: Arrival, now_s: float) -> None:
        """Refuse a message that is over a limit, or for which there is no room.

        Args:
            arrival: a message that passed all other checks.
            now_s: unix time.
        """
        worker = self._worker
        if worker.commit.storage_full_since is not None and worker.commit.waiting_bytes:
            # What waits may be given up and is then sent again: later messages must not be stored
            # before it. If nothing waits, one message tests whether there is room.
            arrival.refuse(MessageReason.STORAGE_FULL)
            return
        destination = worker.destination(arrival.destination)
        source = arrival.key[0]
        if not source:
            self._admit_notice(arrival, destination)
            return
        # Before the limit: a message that finds no room leaves no mark, so its source would be
        # charged each time that it is brought again.
        full = self._refusal(arrival, destination)
        if full is not None:
            worker.room.holds(destination, source)
            arrival.refuse(full)
            return
        over = self._over_limit(arrival, now_s)
        if over is not None:
            worker.recorder.limited(arrival.key, arrival.envelope, over)
            arrival.refuse(over, int(WINDOW_S - now_s % WINDOW_S) + 1)

    async def find_room(self, arrivals: list[Arrival]) -> None:
        """Ask Redis about queues that would refuse some of these messages by an outdated reply."""
        worker = self._worker
        asked: dict[tuple[Destination, int], asyncio.Future[None]] = {}
        for arrival in arrivals:
            destination, source = worker.destination(arrival.destination), arrival.key[0]
            if (destination, source) in asked or self._refusal(arrival, destination) is None:
                continue
            if not worker.room.holds(destination, source):
                asked[destination, source] = answer = worker.loop.create_future()
                worker.room.ask(destination, source, partial(_settle, answer))
        for answer in asked.values():
            await answer

    def _refusal(self, arrival: Arrival, destination: Destination) -> MessageReason | None:
        room, size_bytes = self._worker.room, len(arrival.payload)
        if not arrival.key[0]:
            return room.notice_refusal(destination, size_bytes)
        return room.refusal(destination, arrival.key[0], size_bytes)

    def _admit_notice(self, arrival: Arrival, destination: Destination) -> None:
        worker, partner = self._worker, arrival.partner
        full = self._refusal(arrival, destination)
        if full is not None:
            worker.room.holds(destination, 0)
            arrival.refuse(full)
        elif not partner.trusted and not self._notices.take(partner.place, worker.loop.time()):
            arrival.refuse(InboundReason.ADDRESS_LIMIT)

    def _over_limit(self, arrival: Arrival, now_s: float) -> MessageReason | None:
        book, source = self._worker.meters, arrival.key[0]
        window = int(now_s // WINDOW_S)
        if window != self._meters_window:
            self._meters_window = window
            for former in self._meters.values():
                book.release(former, connection=False)
            self._meters.clear()
        meter = self._meters.get(source)
        if meter is None:
            if not book.limits(source):
                return None
            meter = self._meters[source] = book.acquire(source, connection=False)
        if not meter.limited:
            return None
        over = meter.count(len(arrival.payload), now_s)
        if over is None:
            arrival.meter, arrival.window = meter, window
        else:
            self._worker.metrics.limit_hits += 1
            self._worker.hits.message(source, "")
            if meter.first_hit():
                log.warning("twin %d is over its limit (%s), through another relay", source, over)
        return over


def _settle(answer: asyncio.Future[None]) -> None:
    if not answer.done():  # done already if the server cancelled the request
        answer.set_result(None)

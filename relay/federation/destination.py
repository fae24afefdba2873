"""Delivery to one partner relay: the lanes that have messages for it, and the requests in flight.

Lanes queue here in the order in which they became ready. A relay that takes the batch form gets a
few requests at a time, each with the first messages of as many lanes as are ready. Messages that
arrive while these are in flight form the next batch, so batches grow with the load and a lone
message does not wait. Other relays get one request for each message, many at a time. While a relay
fails, it gets one request at a time, to find out whether it works again.
"""

from __future__ import annotations

import json
import logging
import time
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from proto.federation import batch
from proto.federation.delivery import Outcome, counts, judge, time_out_s
from proto.federation.errors import BatchError
from proto.rmb.reasons import MessageReason
from relay.federation.http_client import Reply, Unanswered, request_opening
from relay.federation.lane import Entry, Lane, Stage
from relay.federation.partners import Partner
from relay.federation.resolver import Asker

if TYPE_CHECKING:
    from relay.federation.sender import Sender

log = logging.getLogger(__name__)

BATCHES: Final = 2
"""Maximum number of batch requests in flight: the relay handles one while the next is on its
way."""
SINGLES: Final = 64
"""Maximum number of requests of the single form in flight."""
TOGETHER_S: Final = 0.0001
"""Seconds that each request of the single form in flight delays the next ones, so that more go out
together the more are in flight. Both sides then read, check, commit and settle several in one step.
"""
LANE_MESSAGES: Final = 64
"""Maximum number of messages of one lane in a batch, so that a busy twin leaves room for others."""
LOADING: Final = 8
"""Maximum number of lanes whose payloads are read again at a time: together what one batch holds.
While a relay fails it is one, which is enough to find out whether the relay works again."""
_REASONS: Final = {
    Outcome.ACCEPTED: None,
    Outcome.REFUSED: MessageReason.REMOTE_4XX,
    Outcome.BUSY: MessageReason.REMOTE_5XX,
    Outcome.FAILED: MessageReason.REMOTE_5XX,
}
"""Reason that is recorded for a message with this outcome."""
_DELIVERY: Final = batch.DELIVERY_HEADER.encode()
SINGLE_FROM: Final = 3
"""Failures in a row from which on the relay is tested with single messages: it may be only the
batch form that does not work."""
SINGLES_S: Final = 10.0
"""Seconds for which no batches are sent after only the batch form turned out to fail."""
FORGET_OFFER: Final = frozenset((404, 405, 415, 501))


class Part(NamedTuple):
    """The messages of one lane in a request."""

    lane: Lane
    entries: list[Entry]


class Destination:
    """Requests to one partner relay.

    Attributes:
        partner: state of the relay.
        progress_at: monotonic time of its last answer.
    """

    def __init__(self, sender: Sender, partner: Partner) -> None:
        self.partner = partner
        self._sender = sender
        self._opening = request_opening(partner.domain, "/", sender.headers)
        self.progress_at = 0.0
        self._ready: deque[Lane] = deque()
        self._posts = 0
        self._loading = 0
        self._scheduled = False
        self._pumped_at = 0.0  # loop time
        self._bad_batches = 0  # failed batches in a row that had an answer
        self._singles_until = 0.0  # unix time

    @property
    def idle(self) -> bool:
        """Whether no lane waits and no request or read is in flight."""
        return not (self._ready or self._posts or self._loading)

    @property
    def _batched(self) -> bool:
        """Whether messages are sent in the batch form now."""
        partner = self.partner
        return (
            partner.batch
            and partner.setbacks.failures < SINGLE_FROM
            and self._sender.clock() >= self._singles_until
        )

    def enqueue(self, lane: Lane) -> None:
        """Queue a lane that has messages for this relay."""
        lane.stage = Stage.READY
        lane.queue = self
        self._ready.append(lane)
        self._schedule()

    def _schedule(self) -> None:
        if self._scheduled:
            return
        self._scheduled = True
        pause_s = 0.0 if self._batched else TOGETHER_S * self._posts
        wait_s = self._pumped_at + pause_s - self._sender.loop.time()
        if wait_s <= 0:
            self._sender.pump_soon(self)
        else:
            self._sender.loop.call_later(wait_s, self.pump)

    def pump(self) -> None:
        """Make requests of the lanes that are ready, as many as may be in flight."""
        self._scheduled = False
        self._pumped_at = self._sender.loop.time()
        partner = self.partner
        while self._ready:
            if partner.retry_at() > self._sender.clock():
                lanes, self._ready = self._ready, deque()
                for lane in lanes:
                    lane.stage = Stage.IDLE
                    lane.shard.advance(lane)
                return
            batched = self._batched
            limit = 1 if partner.setbacks.failures else BATCHES if batched else SINGLES
            if self._posts >= limit:
                return
            messages = batch.MAX_MESSAGES if batched else 1
            parts = self._collect(messages)
            if not parts:
                return
            self._posts += 1
            first = parts[0].entries[0]
            if batched and first.size_bytes <= MAX_BATCHED_BYTES:
                self._sender.spawn(self._post(parts, False))
            elif not self._post_at_once(parts):
                self._sender.spawn(self._post(parts, True))

    def _collect(self, messages: int) -> list[Part]:
        """Take the first messages of the lanes that are ready, as many as fit into a request."""
        parts: list[Part] = []
        room_bytes = MAX_BATCHED_BYTES
        ready, now = self._ready, self._sender.clock()
        while ready and messages:
            lane = ready[0]
            if not lane.shard.may_send():
                ready.popleft()
                lane.stage = Stage.IDLE
                continue
            head = lane.head()
            if head is None or head.deadline <= now:
                ready.popleft()
                lane.stage = Stage.IDLE
                lane.shard.advance(lane)
                continue
            if head.payload is None:
                if self._loading >= (1 if self.partner.setbacks.failures else LOADING):
                    break
                ready.popleft()
                self._load(lane)
                continue
            entries = _first(lane, min(messages, LANE_MESSAGES), room_bytes, now)
            if not entries:
                if parts:
                    break  # no room left in this request
                entries = [head]  # too large for any batch: sent in the single form
            ready.popleft()
            lane.stage = Stage.SENDING
            lane.sending = entries
            parts.append(Part(lane, entries))
            messages -= len(entries)
            room_bytes -= sum(entry.size_bytes + batch.RECORD_OVERHEAD_BYTES for entry in entries)
            if room_bytes <= 0:
                break
        return parts

    def _load(self, lane: Lane) -> None:
        """Read the payloads of a lane, then put it first in the queue."""
        lane.stage = Stage.FETCHING
        self._loading += 1

        def loaded() -> None:
            self._loading -= 1
            lane.stage = Stage.READY
            self._ready.appendleft(lane)
            self._schedule()

        lane.shard.load(lane, loaded)

    def _post_at_once(self, parts: list[Part]) -> bool:
        """Send a request of the single form if a connection is kept; return whether it was sent."""
        sender = self._sender
        entry = parts[0].entries[0]
        payload, started = entry.payload, sender.clock()
        assert payload is not None
        return sender.http.post_at_once(
            self.partner.domain,
            b"%b%b: %b\r\n" % (self._opening, _DELIVERY, self._name(parts[0]).encode()),
            payload,
            time_out_s(sender.options.timeout_s, entry.deadline, started),
            partial(self._replied, parts, True, started),
        )

    async def _post(self, parts: list[Part], single: bool) -> None:
        """Send one request and handle its outcome."""
        sender = self._sender
        started = sender.clock()
        timeout_s = time_out_s(sender.options.timeout_s, _last_deadline(parts), started)
        reply: Reply | Unanswered | None = None
        try:
            reply = await self._request(parts, single, timeout_s)
        except Unanswered as error:
            reply = error
        except Exception:
            log.exception("request to relay %s", self.partner.domain)
        except BaseException:
            self._over(parts)
            raise
        self._replied(parts, single, started, reply)

    async def _request(self, parts: list[Part], single: bool, timeout_s: float) -> Reply:
        sender, domain = self._sender, self.partner.domain
        asker = Asker(parts[0].lane.twin, self.partner.success_at > 0)
        if single:
            entry = parts[0].entries[0]
            assert entry.payload is not None
            headers = {**sender.headers, batch.DELIVERY_HEADER: self._name(parts[0])}
            return await sender.http.post(
                domain, "/", headers, entry.payload, timeout_s, asker=asker
            )
        records = []
        for lane, entries in parts:
            prefix = lane.shard.prefix
            for entry in entries:
                assert entry.payload is not None
                records.append((prefix + entry.id, entry.doubtful, entry.payload))
        body = batch.encode(sender.relay_id.encode(), records)
        return await sender.http.post(
            domain, batch.PATH, sender.headers, body, timeout_s, 2 * len(records), asker
        )

    def _name(self, part: Part) -> str:
        """Return the delivery header value of a message sent in the single form."""
        entry = part.entries[0]
        delivery_id = (part.lane.shard.prefix + entry.id).decode()
        return batch.delivery_header(self._sender.relay_id, delivery_id, entry.doubtful)

    def _replied(
        self,
        parts: list[Part],
        single: bool,
        started: float,
        reply: Reply | Unanswered | None,
    ) -> None:
        """Handle the outcome of one request.

        Args:
            parts: messages of the request.
            single: whether it was of the single form.
            started: unix time at which it was begun.
            reply: the answer, or why no answer came; None: an internal error.
        """
        try:
            if isinstance(reply, Reply):
                if single:
                    self._single_answered(parts[0], started, reply)
                else:
                    self._batch_answered(parts, started, reply)
            elif reply is not None:
                self._unanswered(parts, started, reply)
            else:
                # Not the relay's fault, but handled alike: the messages must not be retried at
                # once, nor for ever.
                self._relay_failed(parts, started, "internal error")
        finally:
            self._over(parts)

    def _over(self, parts: list[Part]) -> None:
        """Record that a request is no longer in flight."""
        self._posts -= 1
        for lane, _ in parts:
            lane.shard.sent(lane)
        self._schedule()

    # --- outcomes -----------------------------------------------------------------------------

    def _unanswered(self, parts: list[Part], started: float, error: Unanswered) -> None:
        sender = self._sender
        usual_s = sender.options.timeout_s
        if error.not_tried:
            sender.partners.put_off(self.partner)
            for lane, _ in parts:
                lane.destination = None
            return
        if error.sent:
            _doubt(parts)
        elapsed_s = sender.clock() - started
        cut_short = error.timed_out and _last_deadline(parts) - started < usual_s
        if not cut_short or counts(elapsed_s, usual_s):
            self._relay_failed(parts, started, str(error), reason=MessageReason.REMOTE_TIMEOUT)
        elif sender.trace.on:
            self._trace(parts, started, str(error))

    def _single_answered(self, part: Part, started: float, reply: Reply) -> None:
        sender, partner = self._sender, self.partner
        sender.partners.offers(partner, reply.offers_batch)
        outcome = judge(reply.status, reply.retry_after_s is not None)
        if outcome is Outcome.FAILED:
            _doubt([part])  # a proxy may have answered for a relay that accepted it
            self._relay_failed([part], started, f"answered {reply.status}")
            return
        self._works(started, part.entries if outcome is Outcome.ACCEPTED else [])
        if self._bad_batches >= SINGLE_FROM:
            self._bad_batches = 0
            self._singles_until = sender.clock() + SINGLES_S
        self._settle(part, [reply.status], [outcome], started, reply.retry_after_s or 0.0)

    def _batch_answered(self, parts: list[Part], started: float, reply: Reply) -> None:
        sender, partner = self._sender, self.partner
        if reply.status != 200:
            outcome = judge(reply.status, reply.retry_after_s is not None)
            if reply.status in FORGET_OFFER or outcome is Outcome.REFUSED:
                # A relay that takes batches refuses messages one by one, in a 200.
                log.info("relay %s takes no batches any more: %d", partner.domain, reply.status)
                sender.partners.offers(partner, False)
                return
            if outcome is Outcome.FAILED:
                _doubt(parts)
            self._bad_batches += 1
            wait_s = reply.retry_after_s or 0.0
            self._relay_failed(parts, started, f"answered {reply.status}", wait_s)
            return
        messages = sum(len(part.entries) for part in parts)
        try:
            statuses = batch.decode_answer(reply.body, messages)
        except BatchError as error:
            _doubt(parts)
            self._bad_batches += 1
            self._relay_failed(parts, started, str(error))
            return
        self._bad_batches = at = 0
        accepted: list[Entry] = []
        for part in parts:
            answers = statuses[at : at + len(part.entries)]
            at += len(answers)
            # Each status is about one message: none of them means that the relay is broken.
            outcomes = [judge(status, True) for status in answers]
            for entry, outcome in zip(part.entries, outcomes, strict=True):
                if outcome is Outcome.ACCEPTED:
                    accepted.append(entry)
            self._settle(part, answers, outcomes, started, 0.0)
        self._works(started, accepted)

    def _works(self, started: float, accepted: list[Entry]) -> None:
        """Record an answer that shows the partner relay works."""
        sender = self._sender
        now = sender.clock()
        self.progress_at = time.monotonic()
        if accepted:
            ages_s = [now - entry.stored_at for entry in accepted]
            sender.partners.accepted(self.partner, now - started, ages_s)
        else:
            sender.partners.works(self.partner)

    def _relay_failed(
        self,
        parts: list[Part],
        started: float,
        why: str,
        wait_s: float = 0.0,
        reason: MessageReason = MessageReason.REMOTE_5XX,
    ) -> None:
        """Record that the relay did not answer, or not as a working relay does."""
        sender, partner = self._sender, self.partner
        sender.partners.failed(partner, started, why, wait_s)
        sender.ranks.failed(partner.domain, sender.clock())
        tried: dict[int, list[Entry]] = {}
        for lane, entries in parts:
            if lane.destination is self:
                lane.destination = None
            tried.setdefault(lane.shard.number, []).extend(entries)
        if sender.trace.on:
            self._trace(parts, started, why)
        if sender.events is not None:
            took_s = sender.clock() - started
            for _, entries in parts:
                sender.events.tried(entries, partner.domain, [reason] * len(entries), took_s)
        attempt = self._try(started, why)
        for shard, entries in tried.items():
            sender.settler.note_try(shard, entries, attempt)

    def _settle(
        self,
        part: Part,
        statuses: Sequence[int],
        outcomes: Sequence[Outcome],
        started: float,
        wait_s: float,
    ) -> None:
        """Settle the messages of one lane after an answer."""
        sender, domain = self._sender, self.partner.domain
        lane = part.lane
        shard = lane.shard
        if sender.trace.on:
            answers = [f"answered {status}" for status in statuses]
            sender.trace.tried(part.entries, domain, answers, started)
        if sender.events is not None:
            reasons = [_REASONS[outcome] for outcome in outcomes]
            sender.events.tried(part.entries, domain, reasons, sender.clock() - started)
        busy: list[Entry] = []
        busy_status = 0
        for entry, status, outcome in zip(part.entries, statuses, outcomes, strict=True):
            if outcome is Outcome.ACCEPTED:
                shard.accepted(entry)
            elif outcome is Outcome.REFUSED:
                sender.settler.note_try(
                    shard.number, [entry], self._try(started, f"answered {status}")
                )
                shard.refused(entry)
            else:
                busy.append(entry)
                busy_status = busy_status or status
        if not busy:
            lane.destination = self
            if lane.busy:
                lane.busy.pop(domain, None)
            return
        lane.destination = None
        sender.ranks.failed(domain, sender.clock())
        sender.partners.declined(self.partner)
        lane.not_now(domain, started, sender.clock(), sender.random, wait_s)
        sender.settler.note_try(shard.number, busy, self._try(started, f"answered {busy_status}"))

    def _trace(self, parts: list[Part], started: float, why: str) -> None:
        for _, entries in parts:
            answers = [why] * len(entries)
            self._sender.trace.tried(entries, self.partner.domain, answers, started)

    def _try(self, started: float, answer: str) -> str:
        took_ms = (self._sender.clock() - started) * 1000
        return json.dumps(
            {
                "at": round(started, 3),
                "relay": self.partner.domain,
                "answer": answer,
                "ms": round(took_ms, 1),
            }
        )


MAX_BATCHED_BYTES: Final = batch.MAX_BODY_BYTES - 1 - batch.MAX_ID_BYTES
"""Maximum size of all records of a batch, in bytes."""


def _doubt(parts: list[Part]) -> None:
    """Mark the messages of a request as possibly accepted."""
    for part in parts:
        for entry in part.entries:
            entry.doubtful = True


def _last_deadline(parts: list[Part]) -> float:
    """Return the latest deadline in a request, after which it is of no use.

    A message that expires earlier does not end the request for the others.
    """
    return max(entry.deadline for part in parts for entry in part.entries)


def _first(lane: Lane, messages: int, room_bytes: int, now: float) -> list[Entry]:
    """Return the first messages of a lane, up to one that is not in memory or does not fit."""
    found: list[Entry] = []
    for entry in lane.entries:
        if entry.over or entry.deadline <= now:
            continue
        room_bytes -= entry.size_bytes + batch.RECORD_OVERHEAD_BYTES
        if entry.payload is None or room_bytes < 0 or len(found) >= messages:
            break
        found.append(entry)
    return found

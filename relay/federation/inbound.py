"""The HTTP endpoint for partner relays: `POST /` with one envelope, and the batch form.

The body of a request is read up to the bound (`inbound_body`), its messages are decided
(`inbound_intake`), and each gets an answer: 202 when it is committed, a 4xx that is final, or 503
if the cause is temporary (`proto.federation.answers`). The batch form answers 200 with a status for
each message.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final

from proto.federation import batch
from proto.federation.answers import REPEATED, TAKEN, Answer, InboundReason, Reason, refused
from proto.federation.domains import MAX_DOMAIN_BYTES, fold
from proto.federation.errors import BatchBound, BatchError
from proto.limits.bucket import TokenBuckets
from proto.rmb.reasons import MessageReason
from proto.websocket.bounds import PartialBudget
from relay.federation.arrival import Arrival
from relay.federation.inbound_body import (
    AsgiClient,
    BodyError,
    Client,
    Headers,
    Post,
    Receive,
    Send,
    read_body,
    send_answer,
    send_early_answer,
)
from relay.federation.inbound_intake import Intake
from relay.federation.inbound_partners import InboundPartners, Partner
from relay.federation.verification import Verification
from relay.ops.metric_names import series
from relay.twins.look_ups import open_look_ups

if TYPE_CHECKING:
    from relay.sessions.worker import Worker

log = logging.getLogger(__name__)

SINGLE_PATH: Final = "/"
_SINGLE_PATH: Final = SINGLE_PATH.encode()
GROUPS: Final = 2
"""Number of groups in which requests of the single form are decided at a time: while the signatures
of one group are checked another is committed, and requests that arrive meanwhile form the next."""
STOP_S: Final = 3.0
"""Seconds that a stop waits for requests that are being decided."""

HttpAnswer = tuple[int, Headers, bytes]

_TEXT: Final = (b"content-type", b"text/plain; charset=utf-8")
_BYTES: Final = (b"content-type", b"application/octet-stream")
_OFFER: Final = (batch.OFFER_HEADER.lower().encode(), batch.OFFER.encode())
_BROKEN: Final[HttpAnswer] = (500, (_TEXT,), b"Internal Server Error")
_RELAY: Final = batch.RELAY_HEADER.lower().encode()


def paths(config: Any) -> tuple[str, ...]:
    """Return the paths that partner relays post to."""
    return (SINGLE_PATH, batch.PATH) if config.federation.batch else (SINGLE_PATH,)


class Inbound:
    """The federation endpoint of one worker."""

    def __init__(self, worker: Worker, config: Any) -> None:
        """
        Args:
            worker: worker that stores the messages.
            config: `rmbsite.config.Config`.
        """
        federation = config.federation
        self._worker = worker
        self._offers_batch: bool = federation.batch
        self._paths = paths(config)
        self._max_message_bytes: int = config.relay.max_message_bytes
        # Two budgets, so that bodies that never end leave room for short ones.
        self._incomplete = PartialBudget(config.relay.partial_bytes)
        self._undecided = PartialBudget(config.relay.partial_bytes)
        self._verification = Verification(federation.verify_processes)
        self._partners = InboundPartners(worker)
        self._intake = Intake(
            worker, self._verification, self._partners, open_look_ups(config, worker.twins)
        )
        self._places: TokenBuckets[str] | None = None
        if federation.requests_per_ip_per_s:
            rate = federation.requests_per_ip_per_s
            self._places = TokenBuckets(rate, rate)
        self._answers: Counter[tuple[int, Reason | None]] = Counter()
        self._taken: HttpAnswer = (TAKEN.status, self._headers(TAKEN), b"")
        self._gathered: list[tuple[Post, Arrival]] = []  # the next group
        self._groups = 0  # number being decided
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Start the background tasks."""
        self._partners.start()

    async def stop(self) -> None:
        """Wait for what is being decided, then stop; new requests are refused by then."""
        deadline = self._worker.loop.time() + STOP_S
        while (
            self._intake.under_way or self._gathered or self._tasks
        ) and self._worker.loop.time() < deadline:
            await asyncio.sleep(0.01)
        await self._partners.stop()
        await self._verification.stop()

    def serves(self, path: str) -> bool:
        """Check whether a POST to this path belongs to federation."""
        return path in self._paths

    def figures(self) -> dict[str, float]:
        """Return the figures for the metrics."""
        figures: dict[str, float] = {
            "federation_inbound_accepted_total": self._answers[TAKEN.status, None],
            "federation_inbound_repeated_total": self._answers[REPEATED.status, None],
            "federation_inbound_forgotten_total": self._intake.memory.forgotten,
            "federation_inbound_checks_waiting": self._verification.waiting,
            "federation_inbound_checkers_restarted_total": self._verification.restarts,
        }
        for (status, reason), count in self._answers.items():
            if reason is not None:
                name = series(
                    "federation_inbound_refused_total", status=str(status), reason=reason.value
                )
                figures[name] = count
        return figures

    async def serve(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request."""
        announced, partner = self._read_head(scope["headers"], (scope.get("client") or ("", 0))[0])
        single = scope["path"] == SINGLE_PATH
        refusal = self._refusal(partner)
        if refusal is not None:
            await self._refuse_early(refusal, receive, send)
            return
        try:
            limit = self._max_message_bytes if single else batch.MAX_BODY_BYTES
            body = await read_body(receive, announced, limit, self._incomplete)
        except BodyError as error:
            if error.answer is not None:
                await self._refuse_early(error.answer, receive, send)
            else:
                self._count(refused(InboundReason.BODY_ENDED), None)
            return
        if not self._undecided.take(len(body)):
            await send_answer(send, *self._refused(refused(InboundReason.BODIES_FULL)))
            return
        client = AsgiClient()
        watch = self._worker.loop.create_task(client.watch(receive))
        try:
            if single:
                arrival = Arrival(body, partner, client)
                await self._intake.take([arrival])
                answer = self._single_answer(arrival)
            else:
                answer = await self._decide_batch(body, partner, client)
            await send_answer(send, *answer)
        finally:
            watch.cancel()
            self._undecided.give(len(body))

    def take_post(self, post: Post) -> bool:
        """Answer one request that was received completely.

        Returns:
            False if the body is too large, so that `serve` has to answer it.
        """
        body = post.body
        single = post.path == _SINGLE_PATH
        if len(body) > (self._max_message_bytes if single else batch.MAX_BODY_BYTES):
            return False
        _, partner = self._read_head(post.headers, post.address)
        refusal = self._refusal(partner)
        if refusal is None and not self._undecided.take(len(body)):
            refusal = refused(InboundReason.BODIES_FULL)
        if refusal is not None:
            post.answer(*self._refused(refusal))
            return True
        if single:
            arrival = Arrival(body, partner, post)
            if self._intake.at_hand(arrival) and arrival.open:
                if not self._gathered and self._groups < GROUPS:
                    self._begin_group()
                self._gathered.append((post, arrival))
            else:
                self._spawn(self._decide_singles([(post, arrival)]))
        else:
            self._spawn(self._decide_batch_of(post, partner))
        return True

    def _begin_group(self) -> None:
        """Decide what is gathered at the end of this turn, then what was gathered meanwhile."""
        self._groups += 1
        self._spawn(self._decide_groups())

    async def _decide_groups(self) -> None:
        try:
            while self._gathered:
                gathered, self._gathered = self._gathered, []
                await self._decide_singles(gathered)
        finally:
            self._groups -= 1
            if self._gathered:  # after an exception or a cancellation
                self._begin_group()

    async def _decide_singles(self, asked: list[tuple[Post, Arrival]]) -> None:
        answered = 0
        try:
            await self._intake.take([arrival for _, arrival in asked], in_order=False)
            for post, arrival in asked:
                post.answer(*self._single_answer(arrival))
                answered += 1
        finally:
            for post, _ in asked[answered:]:
                post.answer(*_BROKEN)
            self._undecided.give(sum(len(post.body) for post, _ in asked))

    async def _decide_batch_of(self, post: Post, partner: Partner) -> None:
        answer = _BROKEN
        try:
            answer = await self._decide_batch(post.body, partner, post)
        finally:
            post.answer(*answer)
            self._undecided.give(len(post.body))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._worker.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a message of another relay: %r", error, exc_info=error)

    def _read_head(
        self, headers: Sequence[tuple[bytes, bytes]], address: str
    ) -> tuple[bytes, Partner]:
        """Return the announced length, and the partner that sent the request."""
        announced = relay = b""
        for name, value in headers:
            if name == b"content-length":
                announced = value
            elif name == _RELAY:
                relay = value
        # Converting other scripts to ASCII takes a millisecond, and no relay sends them.
        named = len(relay) <= MAX_DOMAIN_BYTES and relay.isascii()
        domain = fold(relay.decode("ascii")) if named else ""
        return announced, self._partners.identify(address, domain)

    def _refusal(self, partner: Partner) -> Answer | None:
        """Return the refusal that applies before the body is read, if any."""
        worker = self._worker
        reason: Reason | None = None
        if worker.draining:
            reason = InboundReason.DRAINING
        elif not worker.upkeep.control.known:
            reason = InboundReason.STARTING
        elif partner.banned:
            worker.hits.handshake(partner.place)
            reason = InboundReason.ADDRESS_BANNED
        elif partner.blocked:
            reason = InboundReason.BLOCKED
        elif not self._within_rate(partner.place, 1):
            reason = InboundReason.ADDRESS_LIMIT
        elif not worker.commit.pipe.usable:
            reason = InboundReason.REDIS_AWAY
        elif worker.commit.overfull:
            reason = InboundReason.OVERFULL
        return None if reason is None else refused(reason)

    def _within_rate(self, address: str, messages: int) -> bool:
        if self._places is None or not messages:
            return True
        tokens = min(messages, self._places.burst)
        return self._places.take(address, self._worker.loop.time(), tokens)

    async def _decide_batch(self, body: bytes, partner: Partner, client: Client) -> HttpAnswer:
        try:
            _, records = batch.decode(body)
        except BatchError as error:
            reason: Reason = (
                MessageReason.TOO_LARGE
                if isinstance(error, BatchBound)
                else InboundReason.BAD_BATCH
            )
            return self._refused(refused(reason))
        if not self._within_rate(partner.place, len(records) - 1):
            return self._refused(refused(InboundReason.ADDRESS_LIMIT))
        arrivals = [Arrival(record.envelope, partner, client) for record in records]
        await self._intake.take(arrivals)
        statuses = []
        for arrival in arrivals:
            answer = arrival.answer
            assert answer is not None
            if answer is not TAKEN:
                self._count(answer, arrival)
            statuses.append(answer.status)
        self._answers[TAKEN.status, None] += statuses.count(TAKEN.status)
        return 200, (_BYTES, _OFFER), batch.encode_answer(statuses)

    # --- answers ------------------------------------------------------------------------------

    def _single_answer(self, arrival: Arrival) -> HttpAnswer:
        answer = arrival.answer
        assert answer is not None
        if answer is TAKEN:
            self._answers[TAKEN.status, None] += 1
            return self._taken
        self._count(answer, arrival)
        if answer is REPEATED:
            answer = TAKEN
        return answer.status, self._headers(answer), answer.text.encode()

    def _refused(self, answer: Answer) -> HttpAnswer:
        """Return the answer that refuses a whole request without examining its messages."""
        self._count(answer, None)
        return answer.status, self._headers(answer), answer.text.encode()

    async def _refuse_early(self, answer: Answer, receive: Receive, send: Send) -> None:
        await send_early_answer(receive, send, *self._refused(answer))

    def _headers(self, answer: Answer) -> Headers:
        headers: Headers = (_TEXT,) if answer.text else ()
        if self._offers_batch:
            headers += (_OFFER,)
        if answer.retry_after_s:
            headers += ((b"retry-after", b"%d" % answer.retry_after_s),)
        return headers

    def _count(self, answer: Answer, arrival: Arrival | None) -> None:
        """Count an answer that is not an acceptance, and record it for analytics.

        A final refusal ends the message; other refused messages come again or go elsewhere.
        """
        self._answers[answer.status, answer.reason] += 1
        if answer.reason is None:
            return
        envelope = arrival.envelope if arrival else None
        if not answer.final:
            if arrival is not None and envelope is not None:
                self._worker.recorder.declined(envelope, answer.reason, arrival.partner.domain)
        else:
            if isinstance(answer.reason, MessageReason):
                self._worker.metrics.drops[answer.reason] += 1
            domain = arrival.partner.domain if arrival else ""
            self._worker.recorder.turned_away(envelope, answer.reason, domain)

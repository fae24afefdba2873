"""Processing of messages from the relays, up to the lists of local programs.

    bytes --parse, expiry--> twin looked up --signature, decrypt, repeat?--> request: its list
                                                                            answer: the `ret` list

Unusable messages are counted. The sender of an unusable request receives a signed error with the
codes of rmb-peer 1.5. Messages wait in an inbox (`peer.inbox`), so that a burst of them does not
delay pings and Redis.

A twin whose message cannot be opened may have changed its keys: it is looked up again once before
the message is rejected.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from sys import getsizeof
from typing import Final, NamedTuple

from peer.gateway import bodies, keys
from peer.gateway.backlog import Backlogs, Waiting
from peer.gateway.batch import Why
from peer.gateway.bodies import Failure
from peer.gateway.bounds import MAX_WAITING, MAX_WAITING_BYTES, REFRESH_S
from peer.gateway.calls import Calls
from peer.gateway.commits import Commits
from peer.gateway.queue_writes import QueueWrites
from peer.gateway.work import Work
from peer.inbox import Inbox
from peer.modules.api import CommandError, Request
from peer.senders import Senders
from peer.twins import Twin, TwinCache, TwinsAwayError
from proto.files.errors import FileCode
from proto.rmb import opening, stamp
from proto.rmb import types_pb2 as pb
from proto.rmb.address import Address, from_message
from proto.rmb.bounds import MAX_UID_BYTES
from proto.rmb.errors import (
    CODE_OTHER,
    CipherError,
    EnvelopeError,
    ExpiredError,
    NoPublicKeyError,
    SignatureError,
)
from proto.rmb.repeats import Repeats
from proto.rmb.sealing import PublicKeys, Sealer

log = logging.getLogger(__name__)

STOP_S: Final = 5.0
"""Seconds that received messages may take at shutdown: a chain answers within seconds."""

_KEY_ERRORS = (SignatureError, CipherError, NoPublicKeyError)
_KEY_CODES = frozenset(each.code for each in _KEY_ERRORS)


UNWRITTEN: Final = {
    Why.NO_ROOM: CommandError(FileCode.BUSY, "there is no room for the request: ask again later"),
    Why.FORBIDDEN: CommandError(CODE_OTHER, "the command cannot be served"),
}
"""Errors for requests that Redis does not accept."""


class UnusableError(EnvelopeError):
    """A verified request that cannot be passed on; it has the code for all other reasons."""


class _Answer(NamedTuple):
    """An answer on its way to the program that sent the request."""

    uid: str
    source: Address  # twin 0: a relay
    payload: bytes
    schema: str | None
    timestamp: int
    failure: Failure | None

    @property
    def size_bytes(self) -> int:
        """Memory used, in bytes: the sender may make each text as large as the payload."""
        return sum(map(getsizeof, (*self, *(self.failure or ()))))


class Incoming:
    """Processes the messages that relays deliver.

    Args:
        own: address of the gateway.
        sealer: verifies and decrypts for the gateway.
        twins: cache of the twins that send messages.
        commits: the writing half of Redis.
        writes: passes entries to programs.
        backlogs: programs that wait for answers.
        calls: requests of modules that wait for answers.
        serve: passes a request to a module; returns False if no module has the command.
        refuse: sends the error for a request that no list accepts, given its uid and source.
        send: sends an answer that is not stored, given its deadline.
        answered: called with uid and twin of each answer to a request.
        pong: called with the uid of each pong.
        counters: counts of events, by name.
        on_flood: called with True when reading should stop, and with False when it can continue.
    """

    def __init__(
        self,
        own: Address,
        sealer: Sealer,
        twins: TwinCache,
        commits: Commits,
        writes: QueueWrites,
        backlogs: Backlogs,
        calls: Calls,
        serve: Callable[[Request], bool],
        refuse: Callable[[str, Address, CommandError], None],
        send: Callable[[bytes, int], None],
        answered: Callable[[str, int], None],
        pong: Callable[[str], bool],
        counters: Counter[str],
        on_flood: Callable[[bool], None],
    ) -> None:
        self._own = own
        self._sealer = sealer
        self._twins = twins
        self._commits = commits
        self._writes = writes
        self._backlogs = backlogs
        self._calls = calls
        self._serve = serve
        self._refuse = refuse
        self._send = send
        self._answered = answered
        self._pong = pong
        self._counters = counters
        self._inbox = Inbox(self._open, self._busy, on_flood)
        self._senders = Senders(twins, self._found, self._dropped, self._inbox.resume)
        self._repeats = Repeats()
        self._restored: frozenset[bytes] = frozenset()
        self._refreshed: dict[int, float] = {}  # monotonic time of a twin's last repeated look-up
        self._work = Work(self._inbox.resume)

    def restore(self, signatures: frozenset[bytes]) -> None:
        """Set the signatures of messages that were accepted before the gateway ended."""
        self._restored = signatures

    async def aclose(self) -> None:
        """Process received messages for up to `STOP_S`, as no relay keeps them any more."""
        try:
            async with asyncio.timeout(STOP_S):
                await self.worked()
        except TimeoutError:
            log.warning(
                "ended with undelivered messages: %d of senders that could not be looked up, "
                "%d that waited for redis or a look-up, %d that waited for these",
                len(self._senders),
                len(self._work),
                len(self._inbox),
            )
        await self._senders.aclose()
        await self._work.aclose()

    async def worked(self) -> None:
        """Wait until every received message has reached its module, or Redis."""
        while True:
            await self._inbox.worked()
            under_way = self._senders.look_ups | self._work.tasks
            if under_way:
                await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
            elif self._inbox:
                await self._writes.applied()  # Redis accepts no more at the moment
            else:
                return

    # The inbox.

    def receive(self, data: bytes) -> None:
        """Add one binary message of a relay."""
        self._inbox.receive(data)

    @property
    def waiting(self) -> int:
        """Number of messages whose sender is being looked up."""
        return len(self._senders)

    def resume(self) -> None:
        """Continue with the inbox after Redis has completed pending writes."""
        self._inbox.resume()

    def _busy(self) -> bool:
        """Return whether so much is in progress that the inbox has to wait."""
        waiting = len(self._work) >= MAX_WAITING or self._work.size_bytes >= MAX_WAITING_BYTES
        return waiting or self._commits.full or self._senders.full

    # Processing one message.

    def _open(self, data: bytes) -> None:
        now = int(time.time())
        try:
            envelope = opening.parse(data)
        except EnvelopeError as error:
            self._counters[f"rejected:{error.code}"] += 1
            return
        if len(envelope.uid) > MAX_UID_BYTES:
            self._counters["dropped:uid_too_long"] += 1
            return
        if opening.is_from_relay(envelope):
            self._take_from_relay(envelope, now)
            return
        if from_message(envelope.destination) != self._own:
            self._counters["dropped:misdirected"] += 1
            return
        twin_id = envelope.source.twin
        twin = self._twins.peek(twin_id)
        if twin_id and (twin is None or twin_id in self._senders):
            self._senders.add(envelope, len(data))
        else:
            self._take(envelope, twin, now)

    def _found(self, envelope: pb.Envelope, twin: Twin | None) -> None:
        # The sender of an expired message gets an error too, which needs its key.
        self._take(envelope, twin, int(time.time()))

    def _dropped(self, envelope: pb.Envelope) -> None:
        self._counters["dropped:twins_away"] += 1

    def _take(
        self, envelope: pb.Envelope, twin: Twin | None, now: int, refreshed: bool = False
    ) -> None:
        try:
            payload = opening.open_envelope(envelope, twin, self._sealer, now)
        except _KEY_ERRORS as error:
            if refreshed or twin is None or not self._may_refresh(twin.id):
                self._reject(envelope, error, twin, now)
            else:
                self._work.start(self._open_anew(envelope, twin, error), envelope.ByteSize())
            return
        except EnvelopeError as error:
            self._reject(envelope, error, twin, now)
            return
        try:
            self._dispatch(envelope, payload, now)
        except EnvelopeError as error:
            self._reject(envelope, error, twin, now)

    def _may_refresh(self, twin_id: int) -> bool:
        at = time.monotonic()
        if at - self._refreshed.get(twin_id, -REFRESH_S) < REFRESH_S:
            return False
        self._refreshed.pop(twin_id, None)
        self._refreshed[twin_id] = at
        if len(self._refreshed) > MAX_WAITING:
            del self._refreshed[next(iter(self._refreshed))]
        return True

    async def _open_anew(self, envelope: pb.Envelope, before: Twin, error: EnvelopeError) -> None:
        """Look a twin up again, and open its message if its keys have changed."""
        self._twins.forget(before.id)
        try:
            twin = await self._twins.get(before.id)
        except TwinsAwayError:
            twin = before
        now = int(time.time())
        if twin == before:
            self._reject(envelope, error, before, now)
        else:
            self._counters["keys_changed"] += 1
            self._take(envelope, twin, now, refreshed=True)

    def _reject(
        self, envelope: pb.Envelope, error: EnvelopeError, asker: PublicKeys | None, now: int
    ) -> None:
        self._counters[f"rejected:{error.code}"] += 1
        if envelope.source.twin == self._own.twin and not isinstance(error, UnusableError):
            return  # the only receiver of the error would be this twin
        answer = opening.rejection(envelope, error, asker, self._sealer, now)
        if answer is not None:
            expiration_s = stamp.request_expiration(envelope.expiration)
            self._send(answer, now + expiration_s)

    # Verified messages.

    def _dispatch(self, envelope: pb.Envelope, payload: bytes, now: int) -> None:
        kind = envelope.WhichOneof("message") or ""
        source = from_message(envelope.source)
        deadline = stamp.deadline(envelope.timestamp, envelope.expiration)
        uid, signature = envelope.uid, envelope.signature
        if kind not in ("request", "response", "error"):
            self._counters["dropped:kind"] += 1
            return
        repeated = self._repeats.seen(signature, deadline, now)
        if repeated or signature in self._restored:
            self._counters["repeats"] += 1
            return
        self._writes.seen(signature)
        schema = envelope.schema if envelope.HasField("schema") else None
        if kind == "request":
            self._take_request(envelope, source, payload, schema, deadline)
            return
        self._answered(uid, source.twin)
        failure = None
        if kind == "error":
            failure = Failure(envelope.error.code, envelope.error.message)
            if failure.code in _KEY_CODES and self._may_refresh(source.twin):
                self._twins.forget(source.twin)  # perhaps we sealed for a key that it has replaced
        self._take_answer(_Answer(uid, source, payload, schema, envelope.timestamp, failure))

    def _take_request(
        self,
        envelope: pb.Envelope,
        source: Address,
        payload: bytes,
        schema: str | None,
        deadline: int,
    ) -> None:
        name = envelope.request.command
        # Another twin chooses the list's name: it must not be a key of the gateway.
        if not keys.is_servable(name):
            raise UnusableError(f"unknown command: {name[:80]}")
        tags = envelope.tags if envelope.HasField("tags") else None
        self._counters["requests_received"] += 1
        request = Request(envelope.uid, source, name, payload, schema, tags, deadline)
        if not self._serve(request):
            give_up = partial(self._unwritten, envelope.uid, source)
            self._writes.request(request, envelope.timestamp, envelope.expiration, give_up)

    def _unwritten(self, uid: str, source: Address, why: Why) -> None:
        error = UNWRITTEN[why]
        self._counters[f"rejected:{error.code}"] += 1
        self._refuse(uid, source, error)

    def _take_from_relay(self, envelope: pb.Envelope, now: int) -> None:
        if envelope.HasField("pong"):
            self._pong(envelope.uid)
            return
        try:
            opening.check_expiry(envelope, now)
        except ExpiredError as error:
            self._counters[f"rejected:{error.code}"] += 1
            return
        self._counters["relay_errors"] += 1
        failure = Failure(envelope.error.code, envelope.error.message)
        self._take_answer(
            _Answer(envelope.uid, Address(0), envelope.plain, None, envelope.timestamp, failure)
        )

    def _take_answer(self, answer: _Answer) -> None:
        uid, source, payload, schema, _, failure = answer
        if source.twin:
            self._counters["responses_received" if failure is None else "errors_received"] += 1
        if self._calls.answer(uid, source, payload, schema, failure):
            return
        waiting = self._backlogs.peek(uid)
        if waiting is None:
            self._work.start(self._answer_later(answer), answer.size_bytes)
        else:
            self._give(waiting, answer)

    async def _answer_later(self, answer: _Answer) -> None:
        """Look up in Redis who waits: the request was sent before this process started."""
        waiting = await self._backlogs.get(answer.uid)
        if waiting is None:
            self._counters["dropped:unmatched"] += 1
            log.info("no request waits for answer %.60s of twin %s", answer.uid, answer.source)
        else:
            self._give(waiting, answer)

    def _give(self, waiting: Waiting, answer: _Answer) -> None:
        _, source, payload, schema, timestamp, failure = answer
        body = bodies.incoming_response(
            waiting.reference, str(source), payload, schema, timestamp, failure
        )
        self._writes.answer(waiting.ret, body)

"""Processing of entries of the system lists, up to the relays.

    entry --read, stamp--> twins looked up --seal, sign--> recorded in Redis --> sent --> settled

An entry is in `msgbus.processing` from the moment it is taken. The sealed envelope replaces it
there before it is sent, together with the backlog entry. So a gateway that was killed sends the
same bytes again, which receivers recognise as a repeat. The entry is removed from the hash when the
relay has it, or its answer has arrived.

An entry that cannot be sent is answered at once: a request on its `ret` list, an answer of a
service by an error envelope to the twin that sent the request. If the recipient of that error
cannot be read either, the entry becomes a dead letter.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Final

from google.protobuf.message import DecodeError

from peer.gateway import bodies, dead_letters, keys, queues
from peer.gateway.backlog import Backlogs, Waiting, decode
from peer.gateway.bodies import (
    MAX_SECONDS,
    BodyError,
    Failure,
    OutgoingRequest,
    OutgoingResponse,
)
from peer.gateway.bounds import MAX_IN_HAND, MAX_LOOK_UP_BYTES, ROOM_POLL_S
from peer.gateway.commits import Commits
from peer.gateway.dead_letters import DeadLetter
from peer.gateway.handlers import BUSY
from peer.gateway.look_ups import look_up
from peer.gateway.queue_writes import QueueWrites
from peer.gateway.seals import Seals, portion_of, split
from peer.gateway.work import Work
from peer.modules.api import LocalRequest, Modules
from peer.twins import Twin, TwinCache
from peer.unconfirmed import Unconfirmed
from proto.identity.errors import AgreementError
from proto.rmb import stamp
from proto.rmb import types_pb2 as pb
from proto.rmb.address import Address, SessionKey, from_message
from proto.rmb.bounds import (
    DEFAULT_EXPIRATION_S,
    MAX_EXPIRATION_S,
    RESPONSE_EXPIRATION_S,
)
from proto.rmb.errors import CODE_OTHER, ExpiredError
from proto.rmb.sealing import Sealer
from redispipe.resp import command

log = logging.getLogger(__name__)

LOOK_UPS: Final = 100
"""Number of twins of one request that are looked up together, and sent to once all are known."""

EXPIRED_UNSENT: Final = Failure(ExpiredError.code, "response has expired before sending!")
"""Error for expired messages, in the words of rmb-peer 1.5, which uses them for requests too."""
TOO_LARGE: Final = Failure(CODE_OTHER, "message is too large for the relay")
"""A relay accepts less than `MAX_MESSAGE_BYTES` if its operator configures that."""

_HEAD_BYTES: Final = 4  # length of the backlog in front of a sealed envelope

LocalCall = Callable[[OutgoingRequest, LocalRequest, Callable[[], None]], bool]


class _Sent:
    """A message that is being sent."""

    __slots__ = ("answers", "destination", "uid", "waiting")

    def __init__(
        self, uid: str, destination: SessionKey, waiting: Waiting | None, answers: bool
    ) -> None:
        self.uid = uid
        self.destination = destination
        self.waiting = waiting  # None: an answer, or no program waits
        self.answers = answers  # whether it is an answer with a payload


class Outgoing:
    """Sends the requests of programs and the answers of services.

    Args:
        own: address of the gateway.
        sealer: signs and encrypts for the gateway.
        twins: cache of the twins that receive messages.
        commits: the writing half of Redis.
        writes: passes entries to programs.
        backlogs: programs that wait for answers.
        unconfirmed: sends messages to the relays.
        modules: modules whose commands are not sent but handled by `local`.
        local: starts a handler; returns False if there are too many.
        counters: counts of events, by name.
        on_room: called when fewer entries are in hand.
    """

    def __init__(
        self,
        own: Address,
        sealer: Sealer,
        twins: TwinCache,
        commits: Commits,
        writes: QueueWrites,
        backlogs: Backlogs,
        unconfirmed: Unconfirmed,
        modules: Modules,
        local: LocalCall,
        counters: Counter[str],
        on_room: Callable[[], None],
    ) -> None:
        self._own = own
        self._seals = Seals(sealer)
        self._twins = twins
        self._commits = commits
        self._writes = writes
        self._backlogs = backlogs
        self._unconfirmed = unconfirmed
        self._modules = modules
        self._local = local
        self._counters = counters
        self._on_room = on_room
        self._held: set[str] = set()  # fields of `msgbus.processing` in progress here
        self._sent: dict[str, _Sent] = {}  # by field
        self._by_answer: dict[tuple[str, int], str] = {}  # field by uid and twin that was asked
        self._settled: list[str] = []  # to be removed from the hash
        self._work = Work(on_room)

    @property
    def full(self) -> bool:
        """Whether so much is in hand that no more entries should be taken."""
        return len(self._held) >= MAX_IN_HAND or self._work.size_bytes >= MAX_LOOK_UP_BYTES

    @property
    def in_hand(self) -> int:
        """Number of entries taken and messages not settled."""
        return len(self._held)

    def holds(self, field: str) -> bool:
        """Return whether a field is in progress here, or about to be removed."""
        return field in self._held

    async def aclose(self) -> None:
        """Cancel look-ups; the next start finds their entries again."""
        await self._work.aclose()

    # Entries taken from a list, or found in the hash.

    def take_request(self, field: str, raw: bytes, taken_before: int = MAX_SECONDS) -> None:
        """Send a request of a program.

        Args:
            field: field of the entry in the hash.
            raw: the entry.
            taken_before: Unix time in seconds at which the life of a request without its own time
                begins, unless that is in the future: then it begins now.
        """
        self._held.add(field)
        try:
            request = bodies.read_request(raw)
        except BodyError as error:
            self._counters["refused:malformed"] += 1
            if error.ret:
                failure = Failure(CODE_OTHER, f"malformed request: {error}")
                self._fail(error.ret, error.reference, str(self._own), failure)
            else:
                self._bury(keys.LOCAL, str(error), raw)
            self._settle(field)
            return
        now = int(time.time())
        life_s = request.expiration_s or DEFAULT_EXPIRATION_S
        made_at = request.timestamp or taken_before
        left_s = min(stamp.stamp(now, made_at, life_s)[1], MAX_EXPIRATION_S)
        deadline = now + left_s
        if left_s <= 0:
            self._refuse_expired(field, request)
        elif self._modules.find_local(request.command) is not None:
            self._handle_here(field, request, deadline)
        else:
            receivers = [(twin_id, self._twins.peek(twin_id)) for twin_id in request.destinations]
            few = len(receivers) == 1 or (
                len(receivers) <= portion_of(request) and not self._commits.full
            )
            if not few or any(twin is None for _, twin in receivers):
                # The entry is in memory twice: raw and parsed.
                size_bytes = len(raw) + len(request.payload)
                self._work.start(self._send_later(field, raw, request, deadline), size_bytes)
            else:
                self._send_request(field, request, deadline, receivers)

    def take_response(self, field: str, raw: bytes) -> None:
        """Send an answer of a service."""
        self._held.add(field)
        now = int(time.time())
        try:
            response = bodies.read_response(raw)
        except BodyError as error:
            self._counters["refused:malformed"] += 1
            self._bury(keys.REPLY, str(error), raw)
            if error.destination is None or not error.reference:
                self._settle(field)
                return
            failure = Failure(CODE_OTHER, f"malformed answer of the service: {error}")
            response = OutgoingResponse(error.reference, error.destination, b"", None, 0, failure)
        left_s = stamp.stamp(now, response.timestamp, RESPONSE_EXPIRATION_S)[1]
        if left_s <= 0:
            self._drop_expired(field, response)
            return
        deadline = now + min(left_s, MAX_EXPIRATION_S)
        receiver = self._twins.peek(response.destination.twin)
        if receiver is None:
            work = self._answer_later(field, response, deadline)
            self._work.start(work, len(response.payload))
        else:
            self._send_response(field, response, deadline, receiver)

    def adopt(self, field: str, value: bytes) -> None:
        """Resume an entry that a killed gateway, or a lost connection, left in the hash."""
        self._counters["resumed"] += 1
        kind, body = value[:1], value[1:]
        if kind == queues.REQUEST:
            self.take_request(field, body, queues.taken_before(field))
        elif kind == queues.RESPONSE:
            self.take_response(field, body)
        else:
            self._held.add(field)
            try:
                self._resume(field, body)
            except DecodeError:
                self._bury(keys.PROCESSING, "damaged: no message to send", value)
                self._settle(field)

    # Called by `Unconfirmed`.

    def settled(self, token: Hashable) -> None:
        """Settle a message that a relay has, or whose answer came."""
        field = str(token)
        sent = self._sent.pop(field, None)
        if sent is not None:
            self._by_answer.pop((sent.uid, sent.destination[0]), None)
            self._settle(field)

    def expired(self, token: Hashable) -> None:
        """Report and settle a message that counts as not sent at its deadline."""
        field = str(token)
        sent = self._sent.get(field)
        self._counters["refused:unsent"] += 1
        if sent is not None:
            if sent.waiting is not None:
                source = str(Address(*sent.destination))
                self._fail(sent.waiting.ret, sent.waiting.reference, source, EXPIRED_UNSENT)
            self.settled(field)

    def refused(self, token: Hashable) -> None:
        """Report a message too large for all relays to the twin or program that waits for it."""
        field = str(token)
        sent = self._sent.get(field)
        self._counters["refused:unsendable"] += 1
        if sent is None:
            return
        uid, destination, waiting = sent.uid, sent.destination, sent.waiting
        twin = self._twins.peek(destination[0]) if sent.answers else None
        if twin is not None:  # the twin that sent the request gets the error
            now, left_s = int(time.time()), stamp.response_expiration()
            error = self._seals.error(uid, destination, TOO_LARGE, twin, now, left_s)
            self._record_and_send(field, uid, now + left_s, None, [(destination, error)])
            return
        if waiting is not None:
            source = str(Address(*destination))
            self._fail(waiting.ret, waiting.reference, source, TOO_LARGE)
        self.settled(field)

    def answered(self, uid: str, twin: int) -> None:
        """Settle a request that a twin has answered: it need not be sent again."""
        field = self._by_answer.pop((uid, twin), None)
        if field is not None:
            self._unconfirmed.settle(field)

    # Sending.

    def _send_request(
        self,
        field: str,
        request: OutgoingRequest,
        deadline: int,
        receivers: Sequence[tuple[int, Twin | None]],
        others: Sequence[int] = (),
        rest: bytes = b"",
    ) -> None:
        """Send a request, or a part of it: then `rest` is the entry for the other receivers."""
        now = int(time.time())
        uid = queues.uid_of(field)
        waiting = Waiting(request.ret, request.reference, deadline) if request.ret else None
        sealed: list[tuple[SessionKey, bytes]] = []
        made = self._seals.requests(uid, request, receivers, others, now, deadline - now)
        for twin_id, found in made:
            if isinstance(found, bytes):
                sealed.append(((twin_id, None), found))
            else:
                self._counters["refused:unsendable"] += 1
                self._fail(request.ret, request.reference, str(twin_id), found)
        if not sealed and not rest:
            self._settle(field)
            return
        self._record_and_send(field, uid, deadline, waiting, sealed, rest, len(others))
        self._counters["requests_sent"] += len(sealed)

    def _send_response(
        self, field: str, response: OutgoingResponse, deadline: int, twin: Twin
    ) -> None:
        try:
            sealed = self._seals.response(response, twin, deadline - int(time.time()))
        except AgreementError:
            self._counters["refused:unsendable"] += 1
            log.warning("answer %.60s: twin %d has an invalid public key", response.uid, twin.id)
            self._settle(field)
            return
        self._counters["responses_sent" if response.failure is None else "errors_sent"] += 1
        messages = [(response.destination, sealed)]
        self._record_and_send(
            field, response.uid, deadline, None, messages, answers=response.failure is None
        )

    def _record_and_send(
        self,
        field: str,
        uid: str,
        deadline: int,
        waiting: Waiting | None,
        sealed: Sequence[tuple[SessionKey, bytes]],
        rest: bytes = b"",
        others: int = 0,
        *,
        answers: bool = False,
    ) -> None:
        """Replace an entry by its rest and its messages; send these when that is written."""
        head = self._backlogs.add(uid, waiting) if waiting is not None else b""
        head = queues.SEALED + len(head).to_bytes(_HEAD_BYTES, "little") + head
        fields: list[str | bytes] = [field, queues.REQUEST + rest] if rest else []
        messages = []
        for number, (destination, data) in enumerate(sealed):
            # Numbered by the receivers left, so that no later part reuses a name in progress.
            each = f"{field}.{others + len(sealed) - number}" if fields else field
            self._held.add(each)
            self._sent[each] = _Sent(uid, destination, waiting, answers)
            if waiting is not None:
                self._by_answer.setdefault((uid, destination[0]), each)
            fields += (each, head + data)
            messages.append((each, data))

        def send() -> None:
            for each, data in messages:
                self._unconfirmed.send(data, deadline, each)

        def give_up() -> None:
            for each, _ in messages:
                self.expired(each)

        self._commits.record_until(deadline, fields, send, give_up)

    def _resume(self, field: str, body: bytes) -> None:
        """Send a sealed message again, unchanged."""
        length = int.from_bytes(body[:_HEAD_BYTES], "little")
        head = body[_HEAD_BYTES : _HEAD_BYTES + length]
        data = body[_HEAD_BYTES + length :]
        envelope = pb.Envelope.FromString(data)
        if not envelope.uid:
            raise DecodeError("no envelope of ours")
        deadline = stamp.deadline(envelope.timestamp, envelope.expiration)
        waiting = decode(head) if head else None
        if waiting is not None:
            waiting = waiting._replace(deadline=deadline)
        destination = from_message(envelope.destination)
        answers = envelope.WhichOneof("message") == "response"
        self._sent[field] = _Sent(envelope.uid, destination, waiting, answers)
        if waiting is not None:
            self._by_answer.setdefault((envelope.uid, destination.twin), field)
        if deadline <= time.time():
            self.expired(field)
            return
        if waiting is not None:
            self._backlogs.add(envelope.uid, waiting)  # Redis may have had no room for it
        self._unconfirmed.send(data, deadline, field)

    # Twins that have to be looked up.

    async def _send_later(
        self, field: str, raw: bytes, request: OutgoingRequest, deadline: int
    ) -> None:
        """Send to receivers that are known at once, and to the others as they are looked up.

        A large request is sent in portions: the next portion is written when Redis has the last and
        the relays have room, so that neither has to accept all of it together.
        """
        now, portion = int(time.time()), portion_of(request)
        missing = list(request.destinations)
        peeked = ((twin_id, self._twins.peek(twin_id)) for twin_id in missing)
        found = dict(each for each in peeked if each[1] is not None)
        while time.time() < deadline:
            part, others = split(missing, found, portion)
            if part:
                await self._room(deadline)
                if time.time() >= deadline:
                    break
                receivers = [(twin_id, found[twin_id]) for twin_id in part]
                rest = bodies.for_others(raw, others, now) if others else b""
                self._send_request(field, request, deadline, receivers, others, rest)
                missing = others
                if not missing:
                    return
                if len(part) == portion:  # more receivers may be known
                    await self._commits.applied()
                continue
            asked = list(dict.fromkeys(missing))[:LOOK_UPS]
            found = await look_up(self._twins, asked)
            # A twin whose look-up fails must not delay the others.
            missing.sort(key=set(asked).__contains__)
        self._refuse_expired(field, request)

    async def _room(self, deadline: int) -> None:
        """Wait until Redis and the relays accept more, or the deadline has passed."""
        while (self._commits.full or self._unconfirmed.full) and time.time() < deadline:
            await asyncio.sleep(ROOM_POLL_S)

    async def _answer_later(self, field: str, response: OutgoingResponse, deadline: int) -> None:
        twin_id = response.destination.twin
        found: dict[int, Twin | None] = {}
        while not found and time.time() < deadline:
            found = await look_up(self._twins, (twin_id,))
        twin = found.get(twin_id)
        if time.time() >= deadline:
            self._drop_expired(field, response)
        elif twin is None:
            self._counters["refused:unsendable"] += 1
            log.warning("answer %.60s is for twin %d, which is not known", response.uid, twin_id)
            self._settle(field)
        else:
            self._send_response(field, response, deadline, twin)

    # Entries that are not sent.

    def _handle_here(self, field: str, request: OutgoingRequest, deadline: int) -> None:
        local = LocalRequest(
            tuple(Address(twin) for twin in request.destinations),
            request.command,
            request.payload,
            request.schema,
            request.tags,
            deadline,
        )
        if not self._local(request, local, lambda: self._settle(field)):
            busy = Failure(BUSY.code, BUSY.message)
            self._fail(request.ret, request.reference, str(self._own), busy)
            self._settle(field)

    def _refuse_expired(self, field: str, request: OutgoingRequest) -> None:
        self._counters["refused:expired"] += 1
        error = ExpiredError()
        failure = Failure(error.code, str(error))
        self._fail(request.ret, request.reference, str(self._own), failure)
        self._settle(field)

    def _drop_expired(self, field: str, response: OutgoingResponse) -> None:
        self._counters["refused:expired"] += 1
        log.warning("response %.60s has expired before sending!", response.uid)
        self._settle(field)

    def _fail(self, ret: str, reference: str | None, source: str, failure: Failure) -> None:
        """Send a program the error for its request."""
        now = int(time.time())
        body = bodies.incoming_response(reference, source, b"", None, now, failure)
        self._writes.answer(ret, body)

    def _bury(self, queue: bytes, reason: str, raw: bytes) -> None:
        self._counters["dead_letters"] += 1
        log.warning("%s: unreadable entry: %s", queue.decode(), reason)
        for each in dead_letters.keep(DeadLetter(time.time(), queue.decode(), reason, raw)):
            self._commits.add(each)

    def _settle(self, field: str) -> None:
        """Release an entry: it is removed from the hash with the batch that is being gathered."""
        if not self._settled:
            self._commits.gather(self._remove)
        self._settled.append(field)

    def _remove(self) -> None:
        fields, self._settled = self._settled, []

        def removed() -> None:
            self._held.difference_update(fields)
            self._on_room()

        self._commits.add(command("HDEL", keys.PROCESSING, *fields), removed)

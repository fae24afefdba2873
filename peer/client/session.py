"""A running client: one session of a twin at its relays.

    call() --seal--> Unconfirmed --> Links --> relay         Inbox --> Calls --> call() returns
                                                                   --> Service --> respond()

A sent message stays in `Unconfirmed` until the relay has it or its answer has arrived, and is sent
again when the connection breaks. So a call survives the loss of a relay until it expires.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import math
import time
from collections import deque
from collections.abc import Callable, Collection, Hashable, Sequence
from typing import Any, NamedTuple

from peer.client.answered import Answered
from peer.client.bodies import Reply, encode
from peer.client.bounds import HANDLERS_TIMEOUT_S, MAX_CALLS
from peer.client.calls import Asked, Call, Calls, Outcome, Waiting
from peer.client.receiving import Receiver
from peer.client.serving import Service
from peer.errors import (
    CallError,
    ExpiredError,
    RemoteError,
    TooLargeError,
    TwinNotFoundError,
    seconds,
)
from peer.identity import Identity
from peer.link import Link
from peer.links import Links, MakeLink
from peer.modules.api import CommandError, Modules, Request, Response
from peer.randomness import random_bytes
from peer.twins import Twin, TwinCache
from peer.unconfirmed import Unconfirmed
from proto.files.errors import FileCode
from proto.identity import tokens
from proto.identity.errors import AgreementError
from proto.rmb import stamp
from proto.rmb.address import Address
from proto.rmb.bounds import MAX_EXPIRATION_S
from proto.rmb.errors import CODE_OTHER, CipherError, NoPublicKeyError
from proto.rmb.sealing import Sealer, new_uid

logger = logging.getLogger(__name__)

# This code also tells the sender of a file that it may retry.
ENDING = CommandError(FileCode.BUSY, "the service ends: ask again")

_STALE_KEY_CODES = frozenset({NoPublicKeyError.code, CipherError.code})
"""Error codes of a twin's answers to messages sealed with a key that it has replaced since."""


class _Answer(NamedTuple):
    """Token of an answer, with the data for an error that replaces it."""

    number: int
    uid: str
    source: Address
    receiver: Twin
    deadline: float


class Session:
    """One session, from `start` to `aclose`.

    Args:
        identity: the twin's keys.
        twin: the twin itself, as others see it.
        sid: id of the session.
        twins: cache of all other twins.
        relays: URLs of the relays, the preferred one first.
        modules: modules that answer commands, besides the handlers of `service`.
        make_link: factory of the links to relays; see `Links`.
    """

    def __init__(
        self,
        identity: Identity,
        twin: Twin,
        sid: str | None,
        twins: TwinCache,
        relays: Sequence[str],
        modules: Modules,
        make_link: MakeLink | None = None,
    ) -> None:
        self.own = own = Address(twin.id, sid)
        self.twins = twins
        self._key = identity.key
        encryption = identity.encryption_as(twin.pk)
        if encryption is None:
            logger.warning("twin %d has not published this key: nothing is encrypted", twin.id)
        self._sealer = Sealer(own, identity.key, encryption, random_bytes)
        self._loop = asyncio.get_running_loop()
        self.service = Service(modules, self._respond, self._go_on)
        self.calls = Calls(self._why_expired, self._gone)
        self.inbox = Receiver(own, twins, self._sealer, self)
        self.links = Links(
            relays, self._token, self.inbox.on_message, self._changed, make_link=make_link
        )
        self.inbox.links = self.links
        for each in self.links.links:
            each.on_text = self.inbox.on_text
        self.unconfirmed = Unconfirmed(
            self.links,
            self._make_ping,
            self._settled,
            self._unsent,
            self._refused,
            self._has_room,
        )
        self._room: deque[asyncio.Future[None]] = deque()
        self._answered = Answered()
        self._tokens = itertools.count()  # tokens of messages that are not looked up by token
        self._too_large: TooLargeError | None = None  # of a message that no caller waits for
        self._closed = False

    def start(self) -> None:
        """Connect."""
        self.links.start()

    async def aclose(self) -> None:
        """End everything in progress, and sign out; completes even if it is cancelled."""
        self._closed = True
        async with contextlib.AsyncExitStack() as ending:
            ending.callback(self.unconfirmed.close)
            ending.push_async_callback(self.inbox.aclose)
            ending.push_async_callback(self.links.aclose)
            ending.callback(self._has_room)  # waiting callers see that it is closed
            ending.callback(self.calls.fail_all, CallError("the client was closed"))
            await self.stop_serving()

    # Requests to other twins.

    async def call(
        self,
        destination: Address,
        command: str,
        body: Any,
        *,
        schema: str | None,
        tags: str | None,
        timeout_s: float,
        uid: str | None = None,
    ) -> Reply:
        """Send a request to one session and wait for its first answer.

        An explicit `uid` must not be that of another waiting request.
        """
        content = encode(body, schema)
        until = self._loop.time() + timeout_s
        receiver = self.twins.peek(destination.twin)
        if receiver is None or not self._roomy():
            receiver = await self._ready_within(timeout_s, until, destination.twin)
        try:
            return await self._call(
                destination, receiver, command, content, tags, until, timeout_s, uid
            )
        except RemoteError as error:
            if error.code not in _STALE_KEY_CODES:
                raise
            # It was not carried out, so it may be sent again, if the twin has a new key.
            if self.twins.peek(destination.twin) == receiver:
                self.twins.forget(destination.twin)
            renewed = await self._ready_within(timeout_s, until, destination.twin)
            if renewed.pk == receiver.pk:
                raise
        return await self._call(destination, renewed, command, content, tags, until, timeout_s, uid)

    async def _call(
        self,
        destination: Address,
        receiver: Twin,
        command: str,
        content: Response,
        tags: str | None,
        until: float,
        timeout_s: float,
        uid: str | None,
    ) -> Reply:
        uid = uid or new_uid(random_bytes)
        call = Call(destination, timeout_s, self._loop)
        left_s = self._left(until, timeout_s)
        data = self._sealed(uid, destination, receiver, command, content, tags, left_s)
        self.unconfirmed.send(data, time.time() + left_s, uid)
        self.calls.add(uid, call, left_s)
        try:
            return await call.future
        finally:
            self.calls.remove(uid)

    async def ask(
        self,
        destinations: Collection[Address],
        command: str,
        body: Any,
        *,
        schema: str | None,
        tags: str | None,
        timeout_s: float,
    ) -> tuple[Asked, Callable[[], None]]:
        """Send a request to several sessions.

        Returns the collector of the answers, and the function that ends it.
        """
        content = encode(body, schema)
        destinations = list(dict.fromkeys(destinations))
        asked = Asked(destinations, timeout_s)
        if not destinations:
            asked.expire("nobody was asked")
            return asked, lambda: None
        until = self._loop.time() + timeout_s
        receivers = [await self._ready_within(timeout_s, until, each.twin) for each in destinations]
        uid = new_uid(random_bytes)
        left_s = self._left(until, timeout_s)
        # All are sealed before any is sent: if one fails, none is sent.
        sealed = [
            self._sealed(uid, destination, receiver, command, content, tags, left_s)
            for destination, receiver in zip(destinations, receivers, strict=True)
        ]
        for destination, data in zip(destinations, sealed, strict=True):
            self.unconfirmed.send(data, time.time() + left_s, (uid, destination))
        self.calls.add(uid, asked, left_s)
        return asked, lambda: self.calls.remove(uid)

    async def notify(
        self,
        destination: Address,
        command: str,
        body: Any,
        *,
        schema: str | None,
        tags: str | None,
        timeout_s: float,
    ) -> str:
        """Send a request whose answer is not waited for; return its uid."""
        content = encode(body, schema)
        until = self._loop.time() + timeout_s
        receiver = await self._ready_within(timeout_s, until, destination.twin)
        uid = new_uid(random_bytes)
        data = self._sealed(uid, destination, receiver, command, content, tags, timeout_s)
        self.unconfirmed.send(data, time.time() + timeout_s, uid)
        return uid

    async def flush(self, timeout_s: float) -> None:
        """Wait until the relay has decided all messages sent before.

        Raises:
            ExpiredError: no relay confirmed the messages in time.
            TooLargeError: a message was too large since the last call, and no caller was told.
        """
        uid, ping = self._make_ping()
        self.unconfirmed.send(ping, time.time() + timeout_s, uid)
        try:
            async with asyncio.timeout(timeout_s):
                await self.unconfirmed.flush()
        except TimeoutError:
            self.unconfirmed.settle(uid)
            text = f"no relay has confirmed it within {seconds(timeout_s)}: {self.why_not()}"
            raise ExpiredError(text) from None
        refused, self._too_large = self._too_large, None
        if refused is not None:
            raise refused

    async def drain(self, timeout_s: float) -> None:
        """Wait until handlers have ended and a relay has all sent messages, within time limits."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(HANDLERS_TIMEOUT_S):
                await self.inbox.worked()
                await self.service.idle()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self.unconfirmed.flush()

    async def stop_serving(self) -> None:
        """End all handlers; their callers get an error if a relay is connected."""
        for request in await self.service.aclose():
            self._tell_ending(request)

    def _sealed(
        self,
        uid: str,
        destination: Address,
        receiver: Twin,
        command: str,
        content: Response,
        tags: str | None,
        left_s: float,
    ) -> bytes:
        # Whole seconds on the wire: one more, so that an answer is not refused as expired while
        # it is still waited for.
        expiration_s = min(math.ceil(left_s) + 1, MAX_EXPIRATION_S)
        try:
            data = self._sealer.request(
                uid,
                destination,
                command,
                content.payload,
                receiver,
                int(time.time()),
                expiration_s,
                tags=tags,
                schema=content.schema,
            )
        except AgreementError as error:
            raise CallError(f"twin {destination.twin} publishes no usable key: {error}") from None
        if len(data) > self.unconfirmed.limit_bytes:
            raise TooLargeError(len(data), self.unconfirmed.limit_bytes)
        return data

    # Answers.

    async def _respond(self, request: Request, outcome: Response | CommandError) -> None:
        receiver = self.twins.peek(request.source.twin)
        if receiver is None or self.unconfirmed.overfull:
            left_s = request.deadline - time.time()
            until = self._loop.time() + left_s
            receiver = await self._ready_within(left_s, until, request.source.twin)
        uid, source = request.uid, request.source
        if isinstance(outcome, Response):
            payload, schema = outcome
            now, life_s = int(time.time()), stamp.response_expiration()
            data = self._sealer.response(uid, source, payload, receiver, now, life_s, schema=schema)
            self._answered.keep(source, uid, data)
            token = _Answer(next(self._tokens), uid, source, receiver, request.deadline)
            self.unconfirmed.send(data, request.deadline, token)
        else:
            self._respond_error(uid, source, receiver, request.deadline, outcome)

    def _respond_error(
        self, uid: str, source: Address, receiver: Twin, deadline: float, error: CommandError
    ) -> None:
        now, life_s = int(time.time()), stamp.response_expiration()
        data = self._sealer.error(uid, source, error.code, error.message, receiver, now, life_s)
        self._answered.keep(source, uid, data)
        self.unconfirmed.send(data, deadline, next(self._tokens))

    def _tell_ending(self, request: Request) -> None:
        receiver = self.twins.peek(request.source.twin)
        if receiver is None or self.unconfirmed.overfull:
            return
        with contextlib.suppress(AgreementError):
            self._respond_error(request.uid, request.source, receiver, request.deadline, ENDING)

    # For the inbox: see `receiving.Owner`.

    @property
    def busy(self) -> bool:
        return self.service.full

    def waiting_for(self, uid: str) -> Waiting | None:
        return self.calls.get(uid)

    def requested(self, request: Request) -> None:
        if not self.service.take(request):
            self._tell_ending(request)

    def repeated(self, source: Address, uid: str) -> None:
        answer = self._answered.get(source, uid)
        if answer is not None and not self.unconfirmed.overfull:
            deadline = time.time() + stamp.response_expiration()
            self.unconfirmed.send(answer, deadline, next(self._tokens))

    def answered(self, uid: str, waiting: Waiting, source: Address | None, found: Outcome) -> None:
        if source is not None and isinstance(waiting, Asked):
            self.unconfirmed.settle((uid, source))
        waiting.take(found)

    def ponged(self, uid: str) -> None:
        if not self.unconfirmed.pong(uid):
            self.unconfirmed.settle(uid)

    def reject(self, answer: bytes, deadline: int) -> None:
        if self.unconfirmed.full:  # any twin can cause many
            self.inbox.counters["rejections dropped"] += 1
            return
        self.unconfirmed.send(answer, deadline, next(self._tokens))

    # Room for more.

    def _roomy(self) -> bool:
        return not self._room and not self.unconfirmed.full and len(self.calls) < MAX_CALLS

    async def _ready_within(self, timeout_s: float, until: float, twin: int) -> Twin:
        try:
            async with asyncio.timeout_at(until):
                return await self._ready(twin)
        except TimeoutError:
            raise self._unsendable(timeout_s) from None

    def _left(self, until: float, timeout_s: float) -> float:
        left_s = until - self._loop.time()
        if left_s <= 0:
            raise self._unsendable(timeout_s)
        return left_s

    def _unsendable(self, timeout_s: float) -> ExpiredError:
        text = f"nothing could be sent within {seconds(timeout_s)}: {self.why_not()}"
        return ExpiredError(text)

    async def _ready(self, twin: int) -> Twin:
        """Wait for room, and for the twin."""
        while not self._closed and (self.unconfirmed.full or len(self.calls) >= MAX_CALLS):
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._room.append(waiter)
            try:
                await waiter
            except BaseException:
                if waiter in self._room:
                    self._room.remove(waiter)
                elif not waiter.cancelled():
                    self._let_one_in()  # pass its turn on to the next
                raise
        if self._closed:
            raise CallError("the client was closed")
        return await self._twin(twin)

    async def _twin(self, number: int) -> Twin:
        found = await self.twins.get(number)
        if found is None:
            raise TwinNotFoundError(number)
        return found

    def _has_room(self) -> None:
        while self._room:
            self._let_one_in()

    def _let_one_in(self) -> None:
        while self._room:
            waiter = self._room.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def _gone(self, uid: str) -> None:
        """Settle a request that no longer waits for answers."""
        self.unconfirmed.settle(uid)
        if not self.unconfirmed.full:
            self._let_one_in()

    def _go_on(self) -> None:
        self.inbox.go_on()

    # For the links.

    def _token(self) -> str:
        return tokens.issue(self._key, self.own.twin, self.own.connection, int(time.time()))

    def _changed(self, link: Link) -> None:
        self.unconfirmed.changed(link)

    def _make_ping(self) -> tuple[str, bytes]:
        return self._sealer.ping(int(time.time()))

    def _settled(self, token: Hashable) -> None:
        """Do nothing when a relay has a message."""

    def _unsent(self, token: Hashable) -> None:
        logger.warning("a message expired before a relay took it: %s", self.why_not())

    def _refused(self, token: Hashable, error: TooLargeError) -> None:
        """Report a message too large for all relays to its caller, or to the twin that asked."""
        if isinstance(token, _Answer):
            _, uid, source, receiver, deadline = token
            told = CommandError(CODE_OTHER, str(error))
            # Called later: sending is not allowed during `on_refused`.
            self._loop.call_soon(self._respond_error, uid, source, receiver, deadline, told)
            return
        known_by = token[0] if isinstance(token, tuple) else token
        waiting = self.calls.get(known_by) if isinstance(known_by, str) else None
        if waiting is not None:
            waiting.take(error)
        else:
            logger.warning("not sent: %s", error)
            self._too_large = error

    def _why_expired(self, waiting: Waiting) -> str:
        asked = ", ".join(map(str, waiting.asked))
        text = f"no answer of twin {asked} within {seconds(waiting.timeout_s)}"
        return text if self.links.connected else f"{text}, and no relay: {self.why_not()}"

    def why_not(self) -> str:
        return "; ".join(
            f"{link.url}: {'connected' if link.connected else link.last_error or 'not connected'}"
            for link in self.links.links
        )

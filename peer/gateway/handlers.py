"""Handlers of the commands that the gateway's modules answer, and its services for modules."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import logging
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from peer.errors import TooLargeError
from peer.gateway import bodies, keys
from peer.gateway.bodies import Failure, OutgoingRequest
from peer.gateway.bounds import MAX_HANDLERS, MAX_HANDLERS_BYTES
from peer.gateway.calls import Calls, Refused
from peer.gateway.commits import Commits
from peer.gateway.queue_writes import QueueWrites
from peer.gateway.work import Work
from peer.modules.api import (
    Answer,
    CommandError,
    LocalRequest,
    Modules,
    Request,
    Response,
    answer,
)
from peer.twins import Twin, TwinCache, TwinsAwayError
from proto.files.errors import FileCode
from proto.identity.errors import AgreementError
from proto.rmb import stamp
from proto.rmb.address import Address
from proto.rmb.bounds import DEFAULT_EXPIRATION_S
from proto.rmb.errors import CODE_OTHER, ExpiredError
from proto.rmb.sealing import Sealer
from redispipe.resp import command

log = logging.getLogger(__name__)

_Asked = TypeVar("_Asked")
_Send = Callable[[bytes, int, Refused | None], None]

LATE: Final = CommandError(ExpiredError.code, "request has expired before it was carried out")
"""Error for local programs; a caller elsewhere stops waiting by itself."""

# This code also tells the sender of a file that it may retry.
BUSY: Final = CommandError(FileCode.BUSY, "too many requests are in progress")
ENDING: Final = CommandError(FileCode.BUSY, "the gateway ends: ask again")


class Handlers:
    """Runs the handlers of modules, each in a task, and sends their answers.

    Args:
        modules: modules by the prefixes of their commands.
        sealer: signs and encrypts for the gateway.
        twins: cache of the twins that send requests.
        writes: passes answers to local programs.
        room: waits until there is room for an answer.
        send: sends a message that is not stored, given its deadline.
        send_error: like `send`, for a message that is dropped when there is no room.
        counters: counts of events, by name.
    """

    def __init__(
        self,
        modules: Modules,
        sealer: Sealer,
        twins: TwinCache,
        writes: QueueWrites,
        room: Callable[[], Awaitable[None]],
        send: _Send,
        send_error: _Send,
        counters: Counter[str],
    ) -> None:
        self._modules = modules
        self._sealer = sealer
        self._twins = twins
        self._writes = writes
        self._room = room
        self._send = send
        self._send_error = send_error
        self._counters = counters
        self._work = Work()
        self._numbers = itertools.count()
        self._unanswered: dict[int, Request] = {}
        self._ended = False  # whether modules are being stopped: no more handlers start

    async def idle(self) -> None:
        """Wait until no handler is running."""
        while self._work:
            await asyncio.wait(self._work.tasks)

    async def aclose(self) -> None:
        """Cancel running handlers; their callers, and later ones, get the error ENDING."""
        self._ended = True
        unanswered = list(self._unanswered.values())
        await self._work.aclose()
        for request in unanswered:
            self.refuse(request.uid, request.source, ENDING)

    def serve(self, request: Request) -> bool:
        """Start the handler of a request; return False if no module has the command."""
        handler = self._modules.find(request.command)
        if handler is None:
            return False
        if self._ended:
            self._counters["dropped:ending"] += 1
            self.refuse(request.uid, request.source, ENDING)
        elif self._has_room(size_bytes := request.size_bytes):
            number = next(self._numbers)
            self._unanswered[number] = request
            self._work.start(self._run(number, request, handler), size_bytes)
        else:
            self.refuse(request.uid, request.source, BUSY)
        return True

    def deliver(self, request: Request) -> bool:
        """Like `serve`, for a request of a module.

        Raises:
            CommandError: the gateway is stopping; the request has to be sent again.
        """
        if self._ended and self._modules.find(request.command) is not None:
            raise CommandError(ENDING.code, ENDING.message)
        return self.serve(request)

    def serve_local(
        self, request: OutgoingRequest, local: LocalRequest, done: Callable[[], None]
    ) -> bool:
        """Start the handler of a local program's request; return False if there are too many."""
        handler = self._modules.find_local(request.command)
        # The request, and for each destination a number and its address.
        size_bytes = local.size_bytes + sum(map(sys.getsizeof, request))
        if handler is None or not self._has_room(size_bytes):
            return False
        work = self._run_local(request, local, handler, done)
        self._work.start(work, size_bytes)
        return True

    async def _run(
        self,
        number: int,
        request: Request,
        handler: Callable[[Request], Answer | Awaitable[Answer]],
    ) -> None:
        try:
            await self._carry_out(request, handler)
        finally:
            del self._unanswered[number]

    async def _carry_out(
        self, request: Request, handler: Callable[[Request], Answer | Awaitable[Answer]]
    ) -> None:
        asked = _call(handler, request)
        found = await self._within(asked, request.command, request.deadline)
        if found is None:
            return
        try:
            twin = await self._twins.get(request.source.twin)
        except TwinsAwayError:
            twin = None
        if twin is None:
            return  # unlikely: it was known a moment ago
        try:
            async with asyncio.timeout(max(request.deadline - time.time(), 0)):
                await self._room()
        except TimeoutError:
            self._counters["dropped:late"] += 1
            log.warning("answer of %.80s could not be sent in time", request.command)
            return
        if self._answer(request.uid, request.source, found, twin, self._send):
            self._counters["handled"] += 1

    def refuse(self, uid: str, source: Address, error: CommandError) -> None:
        """Send an error for a verified request that is not carried out."""
        twin = self._twins.peek(source.twin)
        if twin is not None:  # as a rule: it was known a moment ago
            self._answer(uid, source, error, twin, self._send_error)

    def _answer(
        self,
        uid: str,
        source: Address,
        found: Response | CommandError,
        twin: Twin,
        send: _Send,
    ) -> bool:
        """Seal an answer and send it; return False if it cannot be sealed."""
        now, expiration_s = int(time.time()), stamp.response_expiration()
        try:
            if isinstance(found, CommandError):
                data = self._sealer.error(
                    uid, source, found.code, found.message, twin, now, expiration_s
                )
            else:
                data = self._sealer.response(
                    uid, source, found.payload, twin, now, expiration_s, schema=found.schema
                )
        except AgreementError as error:
            log.warning("answer for twin %d cannot be encrypted: %s", twin.id, error)
            return False

        def refused(error: TooLargeError) -> None:
            told = CommandError(CODE_OTHER, str(error))
            self._answer(uid, source, told, twin, self._send_error)

        send(data, now + expiration_s, refused if isinstance(found, Response) else None)
        return True

    async def _run_local(
        self,
        request: OutgoingRequest,
        local: LocalRequest,
        handler: Callable[[LocalRequest], Answer | Awaitable[Answer]],
        done: Callable[[], None],
    ) -> None:
        asked = _call(handler, local)
        found = await self._within(asked, request.command, local.deadline, LATE)
        if found is not None:
            payload, schema, failure = b"", None, None
            if isinstance(found, CommandError):
                failure = Failure(found.code, found.message)
            else:
                payload, schema = found.payload, found.schema
            now = int(time.time())
            body = bodies.incoming_response(request.reference, "", payload, schema, now, failure)
            self._writes.answer(request.ret, body)
        self._counters["handled_local"] += 1
        done()

    async def _within(
        self,
        asked: Awaitable[Answer],
        name: str,
        deadline: int,
        late: CommandError | None = None,
    ) -> Response | CommandError | None:
        """Run a handler until the deadline; return its answer, or `late` after that."""
        try:
            async with asyncio.timeout(max(deadline - time.time(), 0)):
                return await answer(asked, name, log)
        except TimeoutError:
            log.warning("handler of %.80s did not finish in time", name)
            if late is None:
                self._counters["dropped:late"] += 1
            return late

    def _has_room(self, size_bytes: int) -> bool:
        count, total_bytes = len(self._work), self._work.size_bytes + size_bytes
        return not count or (count < MAX_HANDLERS and total_bytes <= MAX_HANDLERS_BYTES)


async def _call(handler: Callable[[_Asked], Answer | Awaitable[Answer]], request: _Asked) -> Answer:
    """Call a handler, which may be a plain function, in the task that catches its exceptions."""
    found: Answer | Awaitable[Answer] = handler(request)
    return await found if inspect.isawaitable(found) else found


class ModuleStore:
    """Persistent values of a module: a hash in Redis."""

    def __init__(self, commits: Commits, prefix: str) -> None:
        self._commits = commits
        self._key = keys.module(prefix)

    async def put(self, name: str, value: bytes) -> None:
        """Store a value under a name."""
        self._commits.add(command("HSET", self._key, name, value))
        await self._commits.applied()

    async def remove(self, name: str) -> None:
        """Remove a value."""
        self._commits.add(command("HDEL", self._key, name))
        await self._commits.applied()

    async def all(self) -> dict[str, bytes]:
        """Return all stored values by name."""
        found: list[bytes] = await self._commits.ask("HGETALL", self._key)
        return {name.decode(): value for name, value in zip(found[::2], found[1::2], strict=True)}


class ModuleContext:
    """Services of the gateway for one of its modules."""

    def __init__(
        self,
        twin: int,
        store: ModuleStore,
        calls: Calls,
        writes: QueueWrites,
        serve: Callable[[Request], bool],
    ) -> None:
        self.twin = twin
        self.store = store
        self._calls = calls
        self._writes = writes
        self._serve = serve

    async def call(
        self,
        twin: int | Address,
        command: str,
        payload: bytes = b"",
        *,
        timeout_s: float = DEFAULT_EXPIRATION_S,
        schema: str | None = None,
        tags: str | None = None,
        uid: str | None = None,
    ) -> Response:
        """Send a request to a twin and wait for its first answer."""
        return await self._calls.call(twin, command, payload, timeout_s, schema, tags, uid)

    async def deliver(self, request: Request) -> None:
        """Pass a request to its module, or to its command's list; wait until Redis has it."""
        if self._serve(request):
            return
        if not keys.is_servable(request.command):
            raise ValueError(f"no service can have the command {request.command[:80]!r}")
        now = int(time.time())
        self._writes.request(request, now, max(request.deadline - now, 1))
        await self._writes.applied()

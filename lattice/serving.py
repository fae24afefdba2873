"""Serves calls from the lattice: decode, check, fetch the payload, run the handler, answer.

Every call with a reply subject is answered; one that cannot be decoded, is refused, fails or takes
too long gets an error. The options limit how many handlers run at once; further calls get an error.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Container
from dataclasses import dataclass
from typing import Final

from nats.aio.msg import Msg

from lattice.connection import LatticeConnection
from lattice.errors import LatticeError, ObjectStoreError, TooLargeError
from lattice.objects import Objects
from proto.lattice.bounds import CHUNK_THRESHOLD_BYTES
from proto.lattice.entity import Entity
from proto.lattice.errors import CheckError, FormatError, Reason
from proto.lattice.invocation import ERROR_PREFIX, check_claims, check_payload
from proto.lattice.messages import (
    Invocation,
    InvocationResponse,
    LinkDefinition,
    decode_invocation,
    response_object_name,
)
from proto.lattice.nkeys import KeyKind, KeyPair

ANSWER_WAIT_S: Final = 2.0
"""Seconds to wait for a connection that is down when an answer is ready."""
MAX_REFUSED: Final = 10_000
"""Maximum number of refusals of a busy process that wait to be sent; further ones are dropped."""
_log = logging.getLogger(__name__)


class OperationError(LatticeError):
    """Error that a handler raises to send its text to the caller."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call that passed the checks.

    Attributes:
        origin: entity that calls, as the sender claims.
        operation: name of the operation, as `Interface.Method`.
        payload: the whole payload.
        invocation: the invocation as received.
        link: link of the origin; None for actors.
    """

    origin: Entity
    operation: str
    payload: bytes
    invocation: Invocation
    link: LinkDefinition | None = None


Handler = Callable[[Call], Awaitable[bytes | None]]


class Serving:
    """Serves the calls to one entity.

    Attributes:
        handlers: handlers by operation.
        counts: number of calls by outcome: `ok`, `failed`, or a `Reason`; unanswered calls count
            a second time, as `unanswered`.
    """

    def __init__(
        self,
        connection: LatticeConnection,
        target: Entity,
        link_of: Callable[[str], LinkDefinition | None] | None = None,
    ) -> None:
        """Create the serving of an entity.

        Args:
            connection: connection to NATS.
            target: entity that is called.
            link_of: function that returns the link of an actor; None: calls need no link.
        """
        self.handlers: dict[str, Handler] = {}
        self.counts: Counter[str] = Counter()
        self._connection = connection
        self._options = connection.options
        self._target = target
        self._link_of = link_of
        self._objects = Objects(connection)
        self._running: set[asyncio.Task[None]] = set()
        self._refused: deque[tuple[str, InvocationResponse]] = deque()
        self._refusing: asyncio.Task[None] | None = None
        self._issuers: Container[str] = self._trusted()

    def _trusted(self) -> frozenset[str]:
        issuers = set(self._options.issuers)
        if self._options.cluster_seed:
            issuers.add(KeyPair.of_seed(self._options.cluster_seed, KeyKind.CLUSTER).public)
        return frozenset(issuers)

    @property
    def running(self) -> int:
        """Number of calls being executed."""
        return len(self._running)

    def receive(self, message: Msg) -> None:
        """Handle a message from the subject of calls, without blocking."""
        if len(self._running) >= self._options.max_running:
            self._refuse(message)
            return
        task = asyncio.create_task(self._serve(message))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def drain(self, timeout_s: float) -> None:
        """Wait until the calls under way are answered; cancel those that exceed the time-out."""
        if self._running:
            _, late = await asyncio.wait(self._running, timeout=timeout_s)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)
        if self._refusing is not None:
            await asyncio.wait([self._refusing], timeout=timeout_s)
        await self._objects.close()

    def _refuse(self, message: Msg) -> None:
        """Queue an answer to a call beyond the limit; one task sends all such answers."""
        try:
            invocation_id = decode_invocation(message.data).id
            outcome = Reason.BUSY
            text = f"busy: {len(self._running)} calls are running, try again later"
        except FormatError as error:
            invocation_id, outcome, text = "", Reason.UNDECODABLE, _undecodable(error)
        self.counts[outcome] += 1
        if not message.reply:
            return
        if len(self._refused) >= MAX_REFUSED:
            self.counts["unanswered"] += 1
            return
        response = InvocationResponse.failure(invocation_id, f"{ERROR_PREFIX}{text}")
        self._refused.append((message.reply, response))
        if self._refusing is None or self._refusing.done():
            self._refusing = asyncio.create_task(self._answer_refused())

    async def _answer_refused(self) -> None:
        while self._refused:
            await self._answer(*self._refused.popleft(), wait_s=0.0)

    async def _serve(self, message: Msg) -> None:
        invocation_id = ""
        try:
            invocation = decode_invocation(message.data)
            invocation_id = invocation.id
            async with asyncio.timeout(self._options.handler_timeout_s):
                result = await self._execute(invocation)
                await self._put_result(invocation_id, result)
            response = InvocationResponse.success(invocation_id, result)
            outcome = "ok"
        except FormatError as error:
            outcome = Reason.UNDECODABLE
            response = InvocationResponse.failure("", f"{ERROR_PREFIX}{_undecodable(error)}")
        except CheckError as error:
            outcome = error.reason
            response = InvocationResponse.failure(invocation_id, f"{ERROR_PREFIX}{error}")
        except OperationError as error:
            outcome, response = "failed", InvocationResponse.failure(invocation_id, str(error))
        except TimeoutError:
            outcome = "failed"
            text = f"{ERROR_PREFIX}no result within {self._options.handler_timeout_s:g} s"
            response = InvocationResponse.failure(invocation_id, text)
        except (ObjectStoreError, TooLargeError) as error:
            outcome = Reason.PAYLOAD_MISSING
            text = f"{ERROR_PREFIX}Error when chunking data: {error}"
            response = InvocationResponse.failure(invocation_id, text)
        except asyncio.CancelledError:  # `drain` timed out: the caller is notified
            self.counts["failed"] += 1
            response = InvocationResponse.failure(invocation_id, "shutting down")
            await self._answer(message.reply, response)
            raise
        except Exception:
            _log.exception("lattice: a handler failed")
            outcome = "failed"
            text = f"{ERROR_PREFIX}the handler failed; see its log"
            response = InvocationResponse.failure(invocation_id, text)
        self.counts[outcome] += 1
        await self._answer(message.reply, response)

    async def _execute(self, invocation: Invocation) -> bytes:
        options = self._options
        claims = check_claims(
            invocation,
            issuers=self._issuers,
            now=time.time(),
            window_s=options.iat_window_s,
            expected_target=self._target.public_key,
            max_payload_bytes=options.max_payload_bytes,
        )
        payload = invocation.msg
        if invocation.moved:
            payload = await self._objects.take(invocation.id, invocation.content_length)
        check_payload(invocation, payload, claims)
        link = None
        if self._link_of is not None:
            key = invocation.origin.public_key
            if (link := self._link_of(key)) is None:
                raise CheckError(Reason.UNLINKED, f"Actor {key} is not linked to this provider")
        handler = self.handlers.get(invocation.operation)
        if handler is None:
            raise CheckError(
                Reason.OPERATION,
                f"Malformed invocation: Invalid method name {invocation.operation}",
            )
        call = Call(invocation.origin, invocation.operation, payload, invocation, link)
        return await handler(call) or b""

    async def _put_result(self, invocation_id: str, result: bytes) -> None:
        if len(result) > CHUNK_THRESHOLD_BYTES:
            await self._objects.put(response_object_name(invocation_id), result)

    async def _answer(
        self, reply: str, response: InvocationResponse, wait_s: float = ANSWER_WAIT_S
    ) -> None:
        if not reply:
            return
        try:
            await self._connection.publish(reply, response.encode(), wait_s=wait_s)
        except LatticeError as error:
            self.counts["unanswered"] += 1
            level = logging.WARNING if wait_s else logging.DEBUG
            _log.log(level, "lattice: cannot answer a call: %s", error)


def _undecodable(error: FormatError) -> str:
    return f"Error when attempting to deserialize invocation: {error}"

"""A connection to NATS that reconnects without end and restores its subscriptions.

Each connection to a server is a `nats-py` client whose own reconnecting is off. When it ends, for
whatever reason, calls under way fail at once instead of at their deadlines; then a new client
connects, with back-off, and takes over the subscriptions. The answers to all requests arrive on one
subscription.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import re
import secrets
from collections.abc import Callable
from enum import StrEnum
from types import TracebackType
from typing import Final, Self

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription as NatsSubscription
from nats.js import JetStreamContext

from lattice import credentials
from lattice.client import OrderedClient
from lattice.errors import (
    CallTimeoutError,
    ConnectError,
    ConnectionLostError,
    NoRespondersError,
    NotConnectedError,
    PermissionDeniedError,
    TooLargeError,
    TooManyCallsError,
)
from lattice.options import LatticeOptions
from lattice.texts import said

FIRST_DELAY_S: Final = 0.1
LAST_DELAY_S: Final = 5.0
CHECK_S: Final = 1.0
"""Seconds between two checks of a connection: `nats-py` does not report each end of one."""
FLUSH_TIMEOUT_S: Final = 2.0
END_TIMEOUT_S: Final = 1.0
MAX_GATHERED: Final = 10_000

MessageHandler = Callable[[Msg], None]

_NO_RESPONDERS: Final = "503"
_DENIED: Final = re.compile(r'permissions violation for (publish|subscription) to "([^"]*)"')
"""Pattern of a server's refusal of a subject; nats-py passes the text on in lower case."""
MAX_REFUSED: Final = 1_000
"""Maximum number of refused subscriptions that are remembered until the next connection."""
_log = logging.getLogger(__name__)


class ConnectionState(StrEnum):
    """State of a connection."""

    CLOSED = "closed"
    CONNECTED = "connected"
    AWAY = "away"


class Subscription:
    """A subscription that is restored on each new connection."""

    def __init__(
        self, connection: LatticeConnection, subject: str, queue: str, handler: MessageHandler
    ) -> None:
        self.subject = subject
        self.queue = queue
        self._connection = connection
        self._handler = handler
        self._nats: NatsSubscription | None = None
        self._client: Client | None = None  # the client that has it now

    async def _call(self, message: Msg) -> None:
        self._handler(message)

    async def _start(self, client: Client) -> None:
        self._client = client
        self._nats = await client.subscribe(self.subject, self.queue, cb=self._call)

    async def drain(self) -> None:
        """End the subscription, after the messages that are already on their way are handled."""
        self._connection._subscriptions.discard(self)
        found, self._nats = self._nats, None
        if found is not None:
            with contextlib.suppress(nats.errors.Error):  # it ended with its connection
                await found.drain()  # type: ignore[no-untyped-call]


class LatticeConnection:
    """A connection to the NATS servers of a lattice.

    Attributes:
        options: options of the connection.
        losses: number of times the connection broke.
        last_error: reason why the connection is down, or was down last.
        denied: what the server last refused for lack of permission; empty: nothing on this
            connection.
    """

    def __init__(self, options: LatticeOptions) -> None:
        self.options = options
        self.losses = 0
        self.last_error = ""
        self.denied = ""
        self._client: Client | None = None
        self._connected = asyncio.Event()
        self._hint = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        self._subscriptions: set[Subscription] = set()
        self._hooks: list[Callable[[], None]] = []
        self._waiting: dict[str, tuple[asyncio.Future[Msg], str]] = {}  # with the subjects
        self._gathering: dict[str, asyncio.Queue[Msg | None]] = {}
        self._inbox = f"{options.inbox_prefix}.{secrets.token_hex(11)}."
        self._next = 0
        self._refused: set[str] = set()  # subscriptions, in lower case

    @property
    def state(self) -> ConnectionState:
        """State of the connection."""
        if self._keeper is None:
            return ConnectionState.CLOSED
        return ConnectionState.AWAY if self._client is None else ConnectionState.CONNECTED

    @property
    def outstanding(self) -> int:
        """Number of requests that wait for an answer."""
        return len(self._waiting)

    @property
    def max_message_bytes(self) -> int:
        """Size of the largest message that the server accepts, in bytes."""
        return self._client.max_payload if self._client is not None else 2**20

    # ---- life

    async def open(self, *, wait: bool = False) -> None:
        """Connect.

        Args:
            wait: whether to keep trying, instead of failing when no server can be used.

        Raises:
            ConnectError: no server can be reached, or none accepts the credentials.
        """
        assert self._keeper is None, "the connection is open already"
        self._subscriptions.add(Subscription(self, f"{self._inbox}*", "", self._answered))
        if not wait:
            await self._connect()
        self._keeper = asyncio.create_task(self._keep())
        if wait:
            await self._connected.wait()

    async def close(self) -> None:
        """End the connection after flushing what was published; requests under way fail."""
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.cancel()
            await asyncio.wait([keeper])
        client = self._client
        self._lost("closed")
        self._subscriptions.clear()
        if client is not None:
            await self._end(client)

    def on_connected(self, hook: Callable[[], None]) -> None:
        """Register a function to be called each time the connection is re-established."""
        self._hooks.append(hook)

    async def connected(self, timeout_s: float) -> Client:
        """Wait until the connection is up, and return its client.

        Raises:
            NotConnectedError: the connection is still down after `timeout_s`.
        """
        if self._client is None and self._keeper is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._connected.wait()
        if self._client is None:
            why = self.last_error if self._keeper is not None else "closed"
            raise NotConnectedError(f"not connected to NATS: {why or 'not opened'}")
        return self._client

    async def _keep(self) -> None:
        while True:
            if self._client is not None:
                await self._until_lost(self._client)
            delay_s = FIRST_DELAY_S
            while self._client is None:
                try:
                    await self._connect()
                except ConnectError as error:
                    _log.warning("lattice: %s; next try in %.1f s at most", error, delay_s)
                    await asyncio.sleep(delay_s * random.uniform(0.5, 1))
                    delay_s = min(2 * delay_s, LAST_DELAY_S)
                else:
                    _log.info("lattice: connected to NATS again")
                    for hook in self._hooks:
                        hook()

    async def _until_lost(self, client: Client) -> None:
        while client.is_connected:
            self._hint.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CHECK_S):
                    await self._hint.wait()
        self.losses += 1
        _log.warning("lattice: lost the connection to NATS: %s", self.last_error or "closed")
        self._lost(self.last_error or "closed by the server")
        await self._end(client)

    def _lost(self, why: str) -> None:
        self._client = None
        self._connected.clear()
        for future, _ in self._waiting.values():
            if not future.done():
                future.set_exception(
                    ConnectionLostError(
                        f"lost the connection to NATS ({why}); the call may have been executed"
                    )
                )
        for queue in self._gathering.values():
            queue.put_nowait(None)

    async def _connect(self) -> None:
        options = self.options
        user = credentials.read(options)
        client = OrderedClient()
        client.needs_tls = options.uses_tls
        self._refused.clear()
        self.denied = ""
        try:
            await client.connect(
                servers=list(options.servers),
                name=options.name,
                allow_reconnect=False,
                max_reconnect_attempts=1,
                reconnect_time_wait=0,
                connect_timeout=options.connect_timeout_s,  # type: ignore[arg-type]
                ping_interval=options.ping_interval_s,  # type: ignore[arg-type]
                max_outstanding_pings=2,
                flush_timeout=FLUSH_TIMEOUT_S,
                inbox_prefix=options.inbox_prefix,
                error_cb=self._failed,
                closed_cb=self._ended,
                tls=options.tls_context(),
                user=options.user or None,
                password=options.password or None,
                token=options.token or None,
                signature_cb=user.signer() if user else None,
                user_jwt_cb=(lambda: user.jwt.encode()) if user else None,
            )
            while missing := [each for each in self._subscriptions if each._client is not client]:
                for subscription in missing:
                    await subscription._start(client)
                await client.flush()
            if self._is_refused(f"{self._inbox}*"):
                raise PermissionDeniedError("subscribe to", f"{self._inbox}*")
        except BaseException as error:
            await self._end(client)
            if not isinstance(error, Exception):
                raise
            if not isinstance(error, nats.errors.NoServersError):
                self.last_error = said(error)
            servers = ", ".join(url.rpartition("@")[2] for url in options.servers)
            raise ConnectError(f"cannot connect to NATS at {servers}: {self.last_error}") from error
        self._client = client
        self._connected.set()

    async def _end(self, client: Client) -> None:
        # Nothing depends on how a broken connection ends, and nats-py may wait for its end forever.
        with contextlib.suppress(Exception):
            async with asyncio.timeout(END_TIMEOUT_S):
                await client.close()

    async def _failed(self, error: Exception) -> None:
        self.last_error = text = said(error)
        self._hint.set()
        if found := _DENIED.search(text.lower()):
            self._denied(*found.groups())
        else:
            _log.debug("lattice: nats: %s", text)

    def _denied(self, what: str, subject: str) -> None:
        """Record a permission error, and fail requests to the subject: they get no other answer."""
        self.denied = f"the NATS user has no permission for the {what} {subject}"
        _log.warning("lattice: %s", self.denied)
        if what == "subscription":
            if len(self._refused) < MAX_REFUSED:
                self._refused.add(subject)
            return
        for future, asked in self._waiting.values():
            if asked.lower() == subject and not future.done():
                future.set_exception(PermissionDeniedError("publish to", asked))

    def _is_refused(self, subject: str) -> bool:
        return subject.lower() in self._refused

    async def _ended(self) -> None:
        self._hint.set()

    # ---- messages

    async def subscribe(
        self, subject: str, handler: MessageHandler, queue: str = ""
    ) -> Subscription:
        """Subscribe a function to a subject; it is called with each message and must not block.

        Returns once the server knows of the subscription, if the connection is up.

        Raises:
            PermissionDeniedError: the NATS user has no permission to subscribe.
        """
        subscription = Subscription(self, subject, queue, handler)
        self._subscriptions.add(subscription)
        if self._client is not None:
            with contextlib.suppress(
                nats.errors.Error
            ):  # broken: the next connection takes it over
                await subscription._start(self._client)
            await self.flush()
            if self._is_refused(subject):
                self._subscriptions.discard(subscription)
                raise PermissionDeniedError("subscribe to", subject)
        return subscription

    async def flush(self) -> None:
        """Wait until the server has received what was sent; return at once if not connected."""
        if self._client is not None:
            with contextlib.suppress(nats.errors.Error):
                await self._client.flush()

    async def publish(
        self,
        subject: str,
        data: bytes = b"",
        reply: str = "",
        headers: dict[str, str] | None = None,
        wait_s: float = 0.0,
    ) -> None:
        """Send a message.

        Args:
            subject: subject to which the message is sent.
            data: body of the message.
            reply: subject for an answer.
            headers: headers of the message.
            wait_s: seconds to wait for a connection that is down.

        Raises:
            NotConnectedError: the connection is down.
            TooLargeError: the message is larger than the server accepts.
        """
        client = self._client or await self.connected(wait_s)
        try:
            await client.publish(subject, data, reply, headers)
        except nats.errors.MaxPayloadError:
            raise TooLargeError("message", len(data), client.max_payload) from None
        except (nats.errors.ConnectionClosedError, nats.errors.OutboundBufferLimitError):
            raise NotConnectedError("not connected to NATS: the connection broke") from None

    async def request(
        self, subject: str, data: bytes, timeout_s: float, headers: dict[str, str] | None = None
    ) -> bytes:
        """Send a message and return the first answer.

        Raises:
            NoRespondersError: the subject has no subscriber.
            PermissionDeniedError: the NATS user has no permission to publish there.
            CallTimeoutError: no answer arrived in time.
            ConnectionLostError: the connection broke before the answer arrived.
            NotConnectedError: the connection stayed down; nothing was sent.
            TooManyCallsError: the maximum number of calls wait for answers already.
            TooLargeError: the message is larger than the server accepts.
        """
        waiting = self._waiting
        if len(waiting) >= self.options.max_outstanding:
            raise TooManyCallsError(f"{len(waiting)} calls wait for an answer already")
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        if self._client is None:
            await self.connected(timeout_s)
        self._next += 1
        token = f"{self._next:x}"
        future: asyncio.Future[Msg] = loop.create_future()
        waiting[token] = future, subject
        timer = loop.call_at(deadline, _expire, future, subject, timeout_s)
        try:
            await self.publish(subject, data, self._inbox + token, headers)
            answer = await future
        finally:
            timer.cancel()
            del waiting[token]
        if not answer.data and answer.headers and answer.headers.get("Status") == _NO_RESPONDERS:
            raise NoRespondersError(subject)
        data_received: bytes = answer.data
        return data_received

    async def gather(
        self, subject: str, data: bytes, timeout_s: float, most: int = MAX_GATHERED
    ) -> list[bytes]:
        """Send a message and return the answers that arrive within the time, `most` at most.

        An empty answer, such as "no responders", ends the wait.

        Raises:
            NotConnectedError: the connection is down.
        """
        self._next += 1
        token = f"{self._next:x}"
        queue = self._gathering[token] = asyncio.Queue()
        answers: list[bytes] = []
        try:
            await self.publish(subject, data, self._inbox + token, wait_s=timeout_s)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    while len(answers) < most:
                        message = await queue.get()
                        if message is None or not message.data:
                            break
                        answers.append(message.data)
        finally:
            del self._gathering[token]
        return answers

    async def jetstream(self, timeout_s: float = 5.0) -> JetStreamContext:
        """Return a JetStream context of the current connection.

        Raises:
            NotConnectedError: the connection stayed down.
        """
        client = await self.connected(timeout_s)
        domain = {"domain": self.options.js_domain} if self.options.js_domain else {}
        return client.jetstream(timeout=timeout_s, **domain)

    def _answered(self, message: Msg) -> None:
        token = message.subject[len(self._inbox) :]
        waiting = self._waiting.get(token)
        if waiting is not None:
            if not waiting[0].done():
                waiting[0].set_result(message)
        elif (queue := self._gathering.get(token)) is not None and queue.qsize() < MAX_GATHERED:
            queue.put_nowait(message)

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


def _expire(future: asyncio.Future[Msg], subject: str, timeout_s: float) -> None:
    if not future.done():
        future.set_exception(CallTimeoutError(subject, timeout_s))

"""One session at one relay: a websocket that is opened again whenever it is lost.

A new token is made for each attempt. Between attempts there are 2 s and more, with some chance in
it. After 20 s of silence a websocket ping is sent, and after 40 s the connection is given up,
unless a large message is on its way and its bytes still move.

What was passed to `try_send` when a connection is lost may have arrived or not: `on_change` tells
of the loss, `sessions` tells one connection from the next, and `peer.unconfirmed` keeps what the
relay has not confirmed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable
from typing import Final, Protocol
from urllib.parse import urlsplit

from picows import WSError, ws_connect

from chain.urls import at_behind_slash, host_and_port, shown
from peer.clock import complaint
from peer.connection import Connection
from peer.handshake import failure_of, refusal
from proto.limits.backoff import Backoff
from proto.rmb.bounds import MAX_MESSAGE_BYTES

logger = logging.getLogger(__name__)

BACKOFF: Final = Backoff(first_s=2.0, longest_s=10.0, factor=1.5, jitter=0.5)
"""Waits between attempts. Published clients wait 2 s each time; whoever has pushed this session out
with the same token is left alone for as long."""

PING_AFTER_S: Final = 20.0
"""Silence after which the relay is asked whether it is there."""

GIVE_UP_AFTER_S: Final = 40.0
"""Silence after which the connection is taken as lost."""

CONNECT_S: Final = 10.0
"""For opening a connection, TLS and token check included."""

CLOSE_S: Final = 2.0
"""How long a closing connection may take to write what is left."""

_picows_logger: Final = logging.getLogger("peer.link.picows")
_picows_logger.setLevel(logging.WARNING)  # connections are logged here


def check_url(url: str) -> str:
    """Returns a relay's URL.

    Raises:
        ValueError: it is none.
    """
    where = shown(url)
    try:
        host, _ = host_and_port(url)
    except ValueError as error:
        raise ValueError(f"relay: {where!r}: {error}") from None
    parts = urlsplit(url)
    if parts.scheme not in ("ws", "wss") or not host:
        raise ValueError(f"relay: {where!r} must be ws:// or wss:// and a host name")
    if parts.query or parts.fragment:
        raise ValueError(f"relay: {where!r} must have no query: the token takes its place")
    if parts.username is not None or at_behind_slash(url):
        raise ValueError(f"relay: {where!r} must have no user name and no password")
    return url


class RefusedError(ConnectionError):
    """A relay did not let a session in.

    Attributes:
        status: of its answer.
        text: of its answer.
    """

    def __init__(self, status: int, text: str) -> None:
        super().__init__(refusal(status, text))
        self.status = status
        self.text = text


class Session(Protocol):
    """A signed-in session, from `Link.connect` to its end.

    Attributes:
        ended: set when nothing more comes or goes.
        full: whether too much is unsent.
        reason: why it ended, if that is known.
        close_code: with which the relay has closed it; 0: with none.
        date: header of the relay's answer.
    """

    ended: asyncio.Event
    full: bool
    reason: str
    close_code: int
    date: str | None

    @property
    def busy_s(self) -> float:
        """For how long it has been full."""

    def try_send(self, data: bytes) -> bool:
        """Send a message; False: too much is unsent."""

    def pause_reading(self) -> None:
        """Read nothing more for a while."""

    def resume_reading(self) -> None:
        """Read again."""

    def leave(self) -> None:
        """Write what is left and end in good order."""

    def drop(self) -> None:
        """End at once; the second time nothing happens."""


class Link:
    """One session at one relay.

    Args:
        url: of the relay, ws:// or wss://.
        token: makes a token; called for each attempt.
        on_message: called with each binary message.
        on_change: called after the connection was made and after it was lost, and when it takes
            messages again after it was full.
        backoff: the waits between attempts.
        ping_after_s: silence after which the relay is asked whether it is there.
        give_up_after_s: silence after which the connection is taken as lost.

    Attributes:
        url: of the relay.
        sessions: how many connections there were, the present one included.
        close_code: with which the relay has closed the last session that ended; 0: with none.
        last_error: why it is not connected, or was not before; empty for never.
        clock: how far this machine's is from the relay's; empty where they agree.
        on_text: called for each text message, which no relay should send; set by the owner.
        token: as given.
        on_message: as given.
    """

    def __init__(
        self,
        url: str,
        token: Callable[[], str],
        on_message: Callable[[bytes], None],
        on_change: Callable[[Link], None] | None = None,
        *,
        backoff: Backoff = BACKOFF,
        ping_after_s: float = PING_AFTER_S,
        give_up_after_s: float = GIVE_UP_AFTER_S,
    ) -> None:
        self.url = check_url(url)
        self.sessions = 0
        self.close_code = 0
        self.last_error = ""
        self.clock = ""
        self.on_text: Callable[[], None] = _nothing
        self.token = token
        self.on_message = on_message
        self._on_change = on_change
        self._backoff = backoff
        self._ping_after_s = ping_after_s
        self._give_up_after_s = give_up_after_s
        self._task: asyncio.Task[None] | None = None
        self._connection: Session | None = None
        self._paused = False
        self._closing = False
        self._waiting: set[asyncio.Future[None]] = set()

    def start(self) -> None:
        """Connect, and stay connected from now on."""
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name=f"link to {self.url}")

    async def aclose(self) -> None:
        """Write what is left, sign out, and end."""
        if self._task is None:
            return
        self._closing = True
        connection = self._connection
        try:
            if connection is not None:
                connection.leave()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(CLOSE_S):
                        await connection.ended.wait()
        finally:  # also when nobody waits for the relay's answer any more
            self.stop()
        await asyncio.gather(self._task, return_exceptions=True)

    def stop(self) -> None:
        """End at once."""
        self._closing = True
        if self._task is not None:
            self._task.cancel()

    @property
    def connected(self) -> bool:
        """Whether there is a session at the moment."""
        return self._connection is not None

    @property
    def busy_s(self) -> float:
        """For how long the connection has taken nothing; 0 when it does, or there is none."""
        connection = self._connection
        return connection.busy_s if connection is not None else 0.0

    def try_send(self, data: bytes) -> bool:
        """Send a binary message; False: not connected, or too much is unsent."""
        connection = self._connection
        return connection is not None and connection.try_send(data)

    async def writable(self, timeout_s: float) -> bool:
        """Wait until `try_send` has a chance, for so long at most; says whether it has."""
        if self._writable():
            return True
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(waiter)
        try:
            async with asyncio.timeout(timeout_s):
                await waiter
        except TimeoutError:
            pass
        finally:
            self._waiting.discard(waiter)
        return self._writable()

    def pause(self) -> None:
        """Read nothing more for a while: the relay keeps what comes."""
        self._paused = True
        if self._connection is not None:
            self._connection.pause_reading()

    def resume(self) -> None:
        """Read again."""
        self._paused = False
        if self._connection is not None:
            self._connection.resume_reading()

    def _writable(self) -> bool:
        return self._connection is not None and not self._connection.full

    # What a link over something else does otherwise: see `peer.hub.link`.

    async def connect(self) -> Session:
        """Open a session, which reads from the next turn of the event loop on.

        Raises:
            OSError, WSError, ValueError: it could not be opened.
        """
        connection = Connection(
            self.on_message,
            self.on_text,
            self.changed,
            self._ping_after_s,
            self._give_up_after_s,
        )
        try:
            async with asyncio.timeout(CONNECT_S):
                await ws_connect(
                    lambda: connection,
                    f"{self.url}?{self.token()}",
                    websocket_handshake_timeout=CONNECT_S,
                    logger_name=_picows_logger,
                    max_frame_size=MAX_MESSAGE_BYTES,
                    enable_auto_pong=False,  # `Connection` bounds them
                    max_redirects=0,  # a token is for the relay that was named
                    # aiofastnet (1.2) leaves the descriptor of a connection that is reset early in
                    # the loop's selector: the next one with that number then neither reads nor
                    # writes.
                    use_aiofastnet=False,
                )
        except BaseException:
            # Picows (2.3) goes on with a handshake that nobody waits for any more: a relay that
            # answers late would have a session here that nobody reads.
            connection.abandon()
            raise
        if not connection.began:  # picows returns all the same when it is cut off before
            raise ConnectionError("the connection was closed before it was open")
        return connection

    async def wait(self, failures: int) -> None:
        """Wait before the next attempt."""
        await asyncio.sleep(self._backoff.delay_s(failures, random.random))

    def log(self, level: int, text: str) -> None:
        """Log what happened to the session."""
        logger.log(level, text)

    def changed(self) -> None:
        """The session was opened, has ended, or takes messages again."""
        if self._on_change is not None:
            self._on_change(self)
        if self._writable():
            for waiter in self._waiting:
                if not waiter.done():
                    waiter.set_result(None)

    # Inside.

    async def _run(self) -> None:
        failures = 0
        while True:
            try:
                connection = await self._connect()
            except (OSError, WSError, ValueError) as error:
                self._failed(reason_of(error))
                failures += 1
            else:
                failures = 1
                self.log(logging.INFO, f"connected to {self.url}")
                try:
                    await connection.ended.wait()
                finally:
                    self._lost(connection)
            await self.wait(failures)

    async def _connect(self) -> Session:
        connection = await self.connect()
        if self._paused:
            connection.pause_reading()
        self._connection = connection
        self.sessions += 1
        former, self.clock = self.clock, complaint(connection.date, time.time())
        if self.clock and self.clock != former:
            self.log(logging.WARNING, f"{self.url}: {self.clock}")
        self.changed()
        return connection

    def _lost(self, connection: Session) -> None:
        self._connection = None
        connection.drop()
        self.close_code = connection.close_code
        if not self._closing:
            self._failed(connection.reason or "the relay closed the connection")
        self.changed()

    def _failed(self, reason: str) -> None:
        if reason != self.last_error:
            self.log(logging.WARNING, f"{self.url}: {reason}")
        self.last_error = reason


def _nothing() -> None:
    pass


def reason_of(error: BaseException) -> str:
    """Say what went wrong with an attempt, in the relay's own words if it said any."""
    if isinstance(error, TimeoutError):
        return f"no connection after {CONNECT_S:.0f} s"
    reason = failure_of(error)
    if (response := getattr(error, "response", None)) is not None:
        clock = complaint(response.headers.get("Date"), time.time())
        reason = f"{reason}; {clock}" if clock else reason
    return reason

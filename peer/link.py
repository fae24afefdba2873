"""One session at one relay, over a websocket that is reopened whenever it is lost.

A new token is issued for each attempt. Attempts are at least 2 s apart, with random jitter. After
20 s of silence a websocket ping is sent, and after 40 s the connection is given up, unless a large
message is in transit and its bytes still move.

A message that was passed to `try_send` before a connection is lost may or may not have arrived:
`on_change` reports the loss, `sessions` distinguishes one connection from the next, and
`peer.unconfirmed` keeps messages that the relay has not confirmed.
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
"""Back-off between attempts.

Published clients wait 2 s each time. The delay also applies when another client has replaced this
session with the same token, so that it is not replaced again at once."""

PING_AFTER_S: Final = 20.0
"""Seconds of silence after which the relay is pinged."""

GIVE_UP_AFTER_S: Final = 40.0
"""Seconds of silence after which the connection is considered lost."""

CONNECT_S: Final = 10.0
"""Time-out for opening a connection, TLS and token check included, in seconds."""

CLOSE_S: Final = 2.0
"""Seconds that a closing connection may take to write unsent data."""

_picows_logger: Final = logging.getLogger("peer.link.picows")
_picows_logger.setLevel(logging.WARNING)  # connections are logged here


def check_url(url: str) -> str:
    """Check a relay's URL, and return it.

    Raises:
        ValueError: the URL is not valid for a relay.
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
    """A relay refused a session.

    Attributes:
        status: HTTP status of the relay's answer.
        text: text of the relay's answer.
    """

    def __init__(self, status: int, text: str) -> None:
        super().__init__(refusal(status, text))
        self.status = status
        self.text = text


class Session(Protocol):
    """A signed-in session, from `Link.connect` to its end.

    Attributes:
        ended: event that is set when the session has ended in both directions.
        full: whether too much data is unsent.
        reason: why the session ended, if that is known.
        close_code: close code that the relay sent; 0 if it sent none.
        date: `Date` header of the relay's answer.
    """

    ended: asyncio.Event
    full: bool
    reason: str
    close_code: int
    date: str | None

    @property
    def busy_s(self) -> float:
        """Seconds for which the session has been full."""

    def try_send(self, data: bytes) -> bool:
        """Send a message; return False if too much data is unsent."""

    def pause_reading(self) -> None:
        """Stop reading until `resume_reading` is called."""

    def resume_reading(self) -> None:
        """Continue to read."""

    def leave(self) -> None:
        """Write what is unsent and end the session cleanly."""

    def drop(self) -> None:
        """End the session at once; further calls have no effect."""


class Link:
    """One session at one relay.

    Args:
        url: URL of the relay, ws:// or wss://.
        token: issues a token; called for each attempt.
        on_message: called with each binary message.
        on_change: called after the connection was made or lost, and when it accepts messages again
            after it was full.
        backoff: back-off between attempts.
        ping_after_s: seconds of silence after which the relay is pinged.
        give_up_after_s: seconds of silence after which the connection is considered lost.

    Attributes:
        url: URL of the relay.
        sessions: number of connections so far, the present one included.
        close_code: close code that the relay sent for the last ended session; 0 if it sent none.
        last_error: the latest reason for a failed or lost connection; empty before the first.
        clock: how far this machine's clock is from the relay's; empty if they agree.
        on_text: called for each text message, which no relay should send; set by the owner.
        token: the argument.
        on_message: the argument.
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
        """Write what is unsent, sign out, and end."""
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
        finally:  # also when the wait for the relay's answer is cancelled
            self.stop()
        await asyncio.gather(self._task, return_exceptions=True)

    def stop(self) -> None:
        """End at once, without signing out."""
        self._closing = True
        if self._task is not None:
            self._task.cancel()

    @property
    def connected(self) -> bool:
        """Whether a session exists at the moment."""
        return self._connection is not None

    @property
    def busy_s(self) -> float:
        """Seconds for which the connection has accepted nothing; 0 if it accepts or is closed."""
        connection = self._connection
        return connection.busy_s if connection is not None else 0.0

    def try_send(self, data: bytes) -> bool:
        """Send a binary message; return False if not connected, or too much data is unsent."""
        connection = self._connection
        return connection is not None and connection.try_send(data)

    async def writable(self, timeout_s: float) -> bool:
        """Wait up to `timeout_s` seconds until `try_send` can succeed; return whether it can."""
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
        """Stop reading until `resume` is called: the relay keeps further messages."""
        self._paused = True
        if self._connection is not None:
            self._connection.pause_reading()

    def resume(self) -> None:
        """Continue to read."""
        self._paused = False
        if self._connection is not None:
            self._connection.resume_reading()

    def _writable(self) -> bool:
        return self._connection is not None and not self._connection.full

    # Overridden by links that do not use a websocket: see `peer.hub.link`.

    async def connect(self) -> Session:
        """Open a session, which is read from the next turn of the event loop on.

        Raises:
            OSError, WSError, ValueError: the session could not be opened.
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
                    max_redirects=0,  # a token is only for the relay of `url`
                    # aiofastnet (1.2) leaves the descriptor of a connection that is reset early in
                    # the loop's selector: the next one with that number then neither reads nor
                    # writes.
                    use_aiofastnet=False,
                )
        except BaseException:
            # Picows (2.3) continues a handshake after it was cancelled: a relay that answers late
            # would have a session here that is never read.
            connection.abandon()
            raise
        if not connection.began:  # picows also returns if the connection is lost early
            raise ConnectionError("the connection was closed before it was open")
        return connection

    async def wait(self, failures: int) -> None:
        """Wait before the next attempt."""
        await asyncio.sleep(self._backoff.delay_s(failures, random.random))

    def log(self, level: int, text: str) -> None:
        """Log an event of the session."""
        logger.log(level, text)

    def changed(self) -> None:
        """Report that the session was opened, has ended, or accepts messages again."""
        if self._on_change is not None:
            self._on_change(self)
        if self._writable():
            for waiter in self._waiting:
                if not waiter.done():
                    waiter.set_result(None)

    # Internals.

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
    """Return why an attempt failed, in the relay's own words if it sent any."""
    if isinstance(error, TimeoutError):
        return f"no connection after {CONNECT_S:.0f} s"
    reason = failure_of(error)
    if (response := getattr(error, "response", None)) is not None:
        clock = complaint(response.headers.get("Date"), time.time())
        reason = f"{reason}; {clock}" if clock else reason
    return reason

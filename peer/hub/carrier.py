"""One connection to a relay that carries many sessions.

It is opened when a session needs it, and reopened with a growing back-off when it was lost and is
still needed. Then all sessions sign in again: at most `MAX_SIGN_INS` at a time, and none for a
while after the relay has reported that its limit for this address is reached. When the relay's
worker is about to restart, sessions move to a new connection; the relay ends the former one when it
carries no sessions any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import random
import ssl
from collections.abc import AsyncIterator
from typing import Final
from urllib.parse import urlsplit

from peer.hub.reports import Reports
from peer.link import CONNECT_S, RefusedError, check_url, reason_of
from peer.mux import ConnectionEndedError, MuxBounds, MuxSession, connect
from proto.limits.backoff import Backoff
from proto.rmb.reasons import SESSIONS, SessionReason

logger = logging.getLogger(__name__)

PATH: Final = "/streams"
"""Path of a relay's listener for streams, unless the URL has a path."""

SUBPROTOCOL: Final = "rmb-streams.v1"

MAX_SIGN_INS: Final = 256
"""Maximum number of sign-ins at a time, so that the first are answered before their time-out."""

BOUNDS: Final = MuxBounds(
    stream_bytes=64 * 1024, ping_interval_ms=20_000, ping_timeout_ms=40_000, max_streams=0
)
"""Limits of the connection. A session that does not read holds up to `stream_bytes`; the relay
keeps the rest."""

BACKOFF: Final = Backoff(first_s=1.0, longest_s=5.0, factor=1.5, jitter=0.5)
"""Back-off between attempts to connect: shorter than a session's, as many sessions wait for it."""

NO_STREAMS: Final = (400, 401, 404, 405, 426)
"""HTTP statuses with which a relay that does not support streams may answer."""

SLOWER: Final = Backoff(first_s=0.5, longest_s=10.0, factor=1.5, jitter=0.5)
"""Back-off of all sign-ins after the relay has reported too many from this address."""


class Carrier:
    """The connection to one relay.

    Args:
        url: URL of the relay, ws:// or wss://.
        tls: TLS context for wss; verifies certificates and the host name by default.
        backoff: back-off between attempts to connect.
        slower: back-off of sign-ins after there were too many.
        bounds: limits of the connection.

    Attributes:
        url: URL of the relay, as sessions show it.
        connections: number of connections so far, the present one included.
        reports: reports of events of sessions, for the log.
        last_error: why it is not connected; empty if it is, or never failed.
    """

    def __init__(
        self,
        url: str,
        *,
        tls: ssl.SSLContext | None = None,
        backoff: Backoff = BACKOFF,
        slower: Backoff = SLOWER,
        bounds: MuxBounds = BOUNDS,
    ) -> None:
        self.url = check_url(url)
        self.connections = 0
        self.last_error = ""
        self.reports = Reports()
        self._tls = tls
        self._backoff = backoff
        self._slower = slower
        self._bounds = bounds
        self._loop = asyncio.get_running_loop()
        self._session: MuxSession | None = None
        self._left = asyncio.Event()  # set when the connection is lost or retired
        self._endings: set[asyncio.Task[None]] = set()  # tasks that close ended connections
        self._outcome: asyncio.Future[None] | None = None  # outcome of the awaited attempt
        self._wanted = asyncio.Event()  # a session waits for the outcome
        self._task: asyncio.Task[None] | None = None
        self._places = asyncio.Semaphore(MAX_SIGN_INS)
        self._refusals = 0  # successive refusals because of too many sign-ins
        self._next_sign_in = 0.0  # loop time

    @property
    def session(self) -> MuxSession | None:
        """The present connection; None if it is not open."""
        session = self._session
        return None if session is None or session.mux.is_closed else session

    async def connected(self) -> MuxSession:
        """Return the connection; wait for the next attempt if it is not open.

        Raises:
            ConnectionError: the attempt failed.
        """
        if self._task is None:
            # In an empty context, not that of a session: log lines are about all sessions.
            self._task = self._loop.create_task(
                self._run(), name=f"carrier to {self.url}", context=contextvars.Context()
            )
        if self.session is None:
            if self._outcome is None:
                self._outcome = self._loop.create_future()
                self._wanted.set()
            await asyncio.shield(self._outcome)
        session = self.session
        if session is None:
            raise ConnectionError(self.last_error or "the connection was lost at once")
        return session

    @contextlib.asynccontextmanager
    async def sign_in(self) -> AsyncIterator[MuxSession]:
        """Wait for a turn to sign in, which lasts as long as the block.

        Raises:
            ConnectionError: the connection could not be opened, or has ended.
        """
        await self.connected()
        async with self._places:
            while (wait_s := self._next_sign_in - self._loop.time()) > 0:
                await asyncio.sleep(wait_s)
            session = self.session
            if session is None:
                raise ConnectionError(self.last_error or "the connection was lost")
            try:
                yield session
            except RefusedError as error:
                if is_refused_for(error, SessionReason.IP_LIMIT):
                    self._slow_down()
                elif is_refused_for(error, SessionReason.DRAINED):
                    self.retire(session)
                raise
            except ConnectionEndedError as error:
                raise ConnectionError(str(error)) from None
            self._refusals = 0

    def retire(self, session: MuxSession) -> None:
        """Allow no more sign-ins on a connection whose relay worker is about to restart."""
        if session is self._session:
            logger.info("%s: the relay restarts; sessions move", self.url)
            self._leave("the relay restarts")

    async def aclose(self) -> None:
        """End the connection; sessions must end before."""
        tasks = [*self._endings, *([] if self._task is None else [self._task])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.reports.close()

    # Internals.

    async def _run(self) -> None:
        failures = 0
        while True:
            await self._wanted.wait()
            stack = contextlib.AsyncExitStack()
            try:
                session = await stack.enter_async_context(
                    connect(
                        stream_url(self.url),
                        tls=self._tls,
                        headers={"Sec-WebSocket-Protocol": SUBPROTOCOL},
                        bounds=self._bounds,
                        open_timeout_s=CONNECT_S,
                    )
                )
            except (ConnectionEndedError, ValueError) as error:
                failures += 1
                self._failed(self._explained(error))
                self._tell()
            else:
                failures = 1
                self._connected(session, stack)
                await self._left.wait()
            await asyncio.sleep(self._backoff.delay_s(failures, random.random))

    def _connected(self, session: MuxSession, stack: contextlib.AsyncExitStack) -> None:
        self._session = session
        self._left.clear()
        ending = self._loop.create_task(self._end(session, stack))
        self._endings.add(ending)
        ending.add_done_callback(self._endings.discard)
        self.connections += 1
        self._next_sign_in, self._refusals = 0.0, 0
        self.last_error = ""
        logger.info("connected to %s", self.url)
        self._tell()

    def _explained(self, error: Exception) -> str:
        cause = error.__cause__
        if cause is None:
            return str(error)
        response = getattr(cause, "response", None)
        wrong = response is not None and int(response.status) in NO_STREAMS
        hint = f"; the relay must serve streams at {stream_url(self.url)}" if wrong else ""
        return reason_of(cause) + hint

    async def _end(self, session: MuxSession, stack: contextlib.AsyncExitStack) -> None:
        async with stack:
            await session.ended.wait()
        if session is self._session:
            why = await _why(session)
            self._failed(why)
            self._leave(why)

    def _leave(self, why: str) -> None:
        self._session, self.last_error = None, why
        self._left.set()

    def _failed(self, reason: str) -> None:
        if reason != self.last_error:
            logger.warning("%s: %s", self.url, reason)
        self.last_error = reason

    def _tell(self) -> None:
        outcome, self._outcome = self._outcome, None
        self._wanted.clear()
        if outcome is not None:
            outcome.set_result(None)

    def _slow_down(self) -> None:
        """Allow no sign-ins for a while; those in progress are refused for the same reason."""
        now = self._loop.time()
        if now < self._next_sign_in:
            return
        self._refusals += 1
        self._next_sign_in = now + self._slower.delay_s(self._refusals, random.random)


def is_refused_for(error: BaseException, reason: SessionReason) -> bool:
    """Return whether a relay has refused a session for a reason."""
    end = SESSIONS[reason]
    return (
        isinstance(error, RefusedError)
        and error.status == end.http_status
        and error.text.strip() == end.text
    )


def stream_url(url: str) -> str:
    """Return the URL at which a relay accepts streams: the default path is added if it has none."""
    parts = urlsplit(url)
    return url if parts.path.strip("/") else parts._replace(path=PATH).geturl()


async def _why(session: MuxSession) -> str:
    """Return the reason for which a connection has ended."""
    try:
        await session.open_stream()
    except ConnectionEndedError as error:
        return str(error)
    raise AssertionError("it has ended")

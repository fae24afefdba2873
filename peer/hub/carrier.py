"""One connection to a relay that carries many sessions.

It is opened when the first session wants it, and again whenever it is lost, with a growing wait.
All sessions sign in again then: at most `MAX_SIGN_INS` at a time, and none for a while after the
relay has said that its limit for this address is reached.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import ssl
from collections.abc import AsyncIterator
from typing import Final
from urllib.parse import urlsplit

from peer.hub.reports import Reports
from peer.link import BACKOFF, CONNECT_S, RefusedError, check_url, reason_of
from peer.mux import ConnectionEndedError, MuxBounds, MuxSession, connect
from proto.limits.backoff import Backoff
from proto.rmb.reasons import SESSIONS, SessionReason

logger = logging.getLogger(__name__)

PATH: Final = "/streams"
"""Of a relay's listener, unless the URL has one."""

SUBPROTOCOL: Final = "rmb-streams.v1"

MAX_SIGN_INS: Final = 256
"""At a time, so that the first ones are answered before their time-out."""

BOUNDS: Final = MuxBounds(
    stream_bytes=64 * 1024, ping_interval_ms=20_000, ping_timeout_ms=40_000, max_streams=0
)
"""A session that does not read holds as much; the relay keeps the rest."""

SLOWER: Final = Backoff(first_s=0.5, longest_s=10.0, factor=1.5, jitter=0.5)
"""Waits of all sign-ins when the relay has said that there were too many from this address."""

_TOO_MANY: Final = SESSIONS[SessionReason.IP_LIMIT]


class Carrier:
    """The connection to one relay.

    Args:
        url: of the relay, ws:// or wss://.
        tls: for wss; verifies certificates and the host name by default.
        backoff: the waits between attempts to connect.
        slower: the waits of sign-ins when there were too many.
        bounds: of the connection.

    Attributes:
        url: of the relay, as sessions show it.
        connections: how many there were, the present one included.
        reports: what happens to sessions, for the log.
        last_error: why it is not connected, or was not before; empty for never.
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
        self._outcome: asyncio.Future[None] | None = None  # of the attempt that is awaited
        self._task: asyncio.Task[None] | None = None
        self._places = asyncio.Semaphore(MAX_SIGN_INS)
        self._refusals = 0  # in a row, as there were too many sign-ins
        self._next_sign_in = 0.0  # loop time

    @property
    def session(self) -> MuxSession | None:
        """The present connection."""
        session = self._session
        return None if session is None or session.mux.is_closed else session

    async def connected(self) -> MuxSession:
        """Return the connection; wait for the next attempt where there is none.

        Raises:
            ConnectionError: that failed.
        """
        if self._task is None:
            self._task = self._loop.create_task(self._run(), name=f"carrier to {self.url}")
        if self.session is None:
            if self._outcome is None:
                self._outcome = self._loop.create_future()
            await asyncio.shield(self._outcome)
        session = self.session
        if session is None:
            raise ConnectionError(self.last_error or "the connection was lost at once")
        return session

    @contextlib.asynccontextmanager
    async def sign_in(self) -> AsyncIterator[MuxSession]:
        """Wait for a turn to sign in, which lasts as long as the block.

        Raises:
            ConnectionError: there is no connection, or it came to an end.
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
                if self.is_too_many(error):
                    self._slow_down()
                raise
            except ConnectionEndedError as error:
                raise ConnectionError(str(error)) from None
            self._refusals = 0

    @staticmethod
    def is_too_many(error: BaseException) -> bool:
        """Whether the relay has refused a session as there were too many of this address."""
        return (
            isinstance(error, RefusedError)
            and error.status == _TOO_MANY.http_status
            and error.text.startswith(_TOO_MANY.text)
        )

    async def aclose(self) -> None:
        """End; sessions do so before."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self.reports.close()

    # Inside.

    async def _run(self) -> None:
        failures = 0
        while True:
            try:
                async with connect(
                    stream_url(self.url),
                    tls=self._tls,
                    headers={"Sec-WebSocket-Protocol": SUBPROTOCOL},
                    bounds=self._bounds,
                    open_timeout_s=CONNECT_S,
                ) as session:
                    failures = 1
                    self._connected(session)
                    await session.ended.wait()
                self._failed(await _why(session))
            except ConnectionEndedError as error:
                failures += 1
                self._failed(reason_of(error.__cause__) if error.__cause__ else str(error))
                self._tell()
            await asyncio.sleep(self._backoff.delay_s(failures, random.random))

    def _connected(self, session: MuxSession) -> None:
        self._session = session
        self.connections += 1
        self._next_sign_in, self._refusals = 0.0, 0
        self.last_error = ""
        logger.info("connected to %s", self.url)
        self._tell()

    def _failed(self, reason: str) -> None:
        if reason != self.last_error:
            logger.warning("%s: %s", self.url, reason)
        self.last_error = reason

    def _tell(self) -> None:
        outcome, self._outcome = self._outcome, None
        if outcome is not None:
            outcome.set_result(None)

    def _slow_down(self) -> None:
        """Let no session sign in for a while; those under way are refused for the same reason."""
        now = self._loop.time()
        if now < self._next_sign_in:
            return
        self._refusals += 1
        self._next_sign_in = now + self._slower.delay_s(self._refusals, random.random)


def stream_url(url: str) -> str:
    """Return where a relay takes streams: at its path for them, unless the URL names another."""
    parts = urlsplit(url)
    return url if parts.path.strip("/") else parts._replace(path=PATH).geturl()


async def _why(session: MuxSession) -> str:
    """Return why a connection has ended."""
    try:
        await session.open_stream()
    except ConnectionEndedError as error:
        return str(error)
    raise AssertionError("it has ended")

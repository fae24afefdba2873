"""A link whose session is a stream of a shared connection."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from peer.hub.carrier import Carrier, is_refused_for
from peer.hub.session import StreamSession
from peer.link import BACKOFF, CONNECT_S, Link, Session
from peer.mux import StreamFailedError
from proto.limits.backoff import Backoff
from proto.rmb.reasons import SESSIONS, SessionReason

logger = logging.getLogger(__name__)

_ABOUT_ALL: Final = (SessionReason.IP_LIMIT, SessionReason.DRAINED)
_DRAINED: Final = SESSIONS[SessionReason.DRAINED].close_code


class StreamLink(Link):
    """One session at the relay of a carrier.

    The carrier delays attempts that failed because of the connection. The back-off of this link
    applies to failures of its own session, such as when its twin is refused.

    Args:
        carrier: the connection.
        name: name of the session in the log.
        token, on_message, on_change, backoff: as for `Link`.
    """

    def __init__(
        self,
        carrier: Carrier,
        name: str,
        token: Callable[[], str],
        on_message: Callable[[bytes], None],
        on_change: Callable[[Link], None] | None = None,
        *,
        backoff: Backoff = BACKOFF,
    ) -> None:
        super().__init__(carrier.url, token, on_message, on_change, backoff=backoff)
        self._carrier = carrier
        self._name = name
        self._is_alone = False  # whether the last event concerns only this session
        self._last: StreamSession | None = None

    async def connect(self) -> Session:
        """Open a session, which is read from the next turn of the event loop on.

        Raises:
            OSError: the session could not be opened.
        """
        self._is_alone, self._last = False, None
        async with self._carrier.sign_in() as mux:
            try:
                async with asyncio.timeout(CONNECT_S):
                    self._last = await StreamSession.sign_in(
                        mux, self.token(), self.on_message, self.changed
                    )
            except StreamFailedError as error:
                self._is_alone = True
                raise ConnectionError(f"the relay accepted no stream: {error}") from None
            except OSError as error:
                self._is_alone = not any(is_refused_for(error, each) for each in _ABOUT_ALL)
                raise
        self._is_alone = True
        return self._last

    async def wait(self, failures: int) -> None:
        """Wait before the next attempt; if the connection is the cause, the carrier waits."""
        if self._is_drained and self._last is not None:
            self._carrier.retire(self._last.mux)
        elif self._is_alone and self._carrier.session is not None:
            await super().wait(failures)

    def log(self, level: int, text: str) -> None:
        """Log events of this session only: the carrier logs the others once for all sessions."""
        is_own = self._is_alone and self._carrier.session is not None and not self._is_drained
        if level >= logging.WARNING and is_own:
            self._carrier.reports.add(self._name, text)
        else:
            logger.debug("session %s: %s", self._name, text)

    @property
    def _is_drained(self) -> bool:
        return self._is_alone and self._last is not None and self._last.close_code == _DRAINED

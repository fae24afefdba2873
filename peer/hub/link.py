"""A link whose session is a stream of a connection that others share."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from peer.hub.carrier import Carrier
from peer.hub.session import StreamSession
from peer.link import BACKOFF, CONNECT_S, Link, Session
from peer.mux import StreamFailedError
from proto.limits.backoff import Backoff

logger = logging.getLogger(__name__)


class StreamLink(Link):
    """One session at the relay of a carrier.

    The carrier paces what concerns all its sessions; the backoff is that of this one, such as when
    its twin is refused.

    Args:
        carrier: the connection.
        name: of the session, in the log.
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
        self._is_alone = False  # what was last is about this session, not about the connection

    async def connect(self) -> Session:
        """Open a session, which reads from the next turn of the event loop on.

        Raises:
            OSError: there is none.
        """
        self._is_alone = False
        async with self._carrier.sign_in() as mux:
            try:
                async with asyncio.timeout(CONNECT_S):
                    session = await StreamSession.sign_in(
                        mux, self.token(), self.on_message, self.changed
                    )
            except StreamFailedError as error:
                self._is_alone = True
                raise ConnectionError(f"the relay accepted no stream: {error}") from None
            except OSError as error:
                self._is_alone = not Carrier.is_too_many(error)
                raise
        self._is_alone = True
        return session

    async def wait(self, failures: int) -> None:
        """Wait before the next attempt; where that is about the connection, the carrier waits."""
        if self._is_alone and self._carrier.session is not None:
            await super().wait(failures)

    def log(self, level: int, text: str) -> None:
        """Log what happened to the session alone: the carrier logs the rest once for all."""
        if level >= logging.WARNING and self._is_alone and self._carrier.session is not None:
            self._carrier.reports.add(self._name, text)
        else:
            logger.debug("session %s: %s", self._name, text)

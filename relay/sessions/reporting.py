"""Reports what happens to a worker's sessions to the history (database rows) and the log."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from proto.rmb.reasons import SessionReason
from relay.mux.stream_socket import StreamSocket
from relay.sessions.history import SessionHistory, SessionOpened, SessionProgress
from relay.sessions.session import Session

log = logging.getLogger(__name__)


def connection_of(session: Session) -> dict[str, str]:
    """Return the fields of a log line that identify a session's connection and its address."""
    return {
        "connection": f"{session.destination.text}@{session.epoch}",
        "remote": session.address,
    }


class HistoryReporter:
    """Records opens, closes and changed counters; no method waits for the database."""

    def __init__(self, history: SessionHistory) -> None:
        self._history = history
        self._reported: dict[Session, int] = {}  # session -> its counters' sum when last reported

    def opened(self, session: Session) -> None:
        """Record that the session is held from now on."""
        self._reported[session] = 0
        if log.isEnabledFor(logging.DEBUG):
            text = session.destination.text
            log.debug("session %s from %s opened", text, session.address,
                      extra=connection_of(session))  # fmt: skip
        connection = stream = None
        if isinstance(session.socket, StreamSocket):
            connection, stream = session.socket.connection.number, session.socket.id
        self._history.opened(
            SessionOpened(
                session.destination.key,
                session.epoch,
                session.opened_at,
                session.address,
                session.user_agent,
                connection,
                stream,
            )
        )

    def closed(self, session: Session, reason: SessionReason) -> None:
        """Record that the session has ended; one that never held its key has no row."""
        if self._reported.pop(session, None) is None:
            return
        if log.isEnabledFor(logging.DEBUG):
            text = session.destination.text
            log.debug("session %s ended: %s", text, reason, extra=connection_of(session))
        self._history.closed(_progress(session), reason)

    def progress(self, sessions: Iterable[Session]) -> None:
        """Record the counters of sessions that changed since the last call."""
        changed = []
        for session in sessions:
            total = session.messages_in + session.messages_out + session.drops
            if self._reported.get(session, total) != total:
                self._reported[session] = total
                changed.append(_progress(session))
        if changed:
            self._history.progress(changed)


def _progress(session: Session) -> SessionProgress:
    return SessionProgress(
        session.destination.key,
        session.epoch,
        messages_in=session.messages_in,
        messages_out=session.messages_out,
        bytes_in=session.bytes_in,
        bytes_out=session.bytes_out,
        backlog=session.destination.queued,
        drops=session.drops,
        slowed=session.slowed,
    )

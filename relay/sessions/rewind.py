"""How a session reads its stream again after Redis went back in time.

It reads from the start. An entry is skipped only if this connection had the very same one, by id
*and* content: Redis may have given the id to another message since.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from relay.queues.entries import entry_payload, fingerprint

if TYPE_CHECKING:
    from relay.sessions.session import Session

Had = dict[bytes, tuple[int, int]]
"""Entry id -> (hash of its content, end position on the socket; -1: it has arrived)."""


def take_what_it_had(session: Session) -> Had:
    """Move all entries that the session holds in memory into one dictionary, and return it."""
    had: Had = {entry_id: (content, -1) for entry_id, content in session.removals}
    had.update((entry_id, (content, -1)) for entry_id, content in session.removing.items())
    had.update((entry_id, (content, end)) for end, entry_id, content in session.inflight)
    if session.had:
        had = {**session.had, **had}
    session.removals.clear()
    session.removing.clear()
    session.inflight.clear()
    return had


def is_had(session: Session, entry_id: bytes, fields: list[bytes]) -> bool:
    """Check whether the connection has this very entry; if so, its removal continues."""
    assert session.had is not None
    content, position = session.had.pop(entry_id)
    payload = entry_payload(fields)
    if content and (payload is None or fingerprint(payload) != content):
        return False
    if position > session.socket.acknowledged():
        session.inflight.append((position, entry_id, content))
        session.worker.unconfirmed[session] = None
    else:
        session.removals.append((entry_id, content))
        session.worker.commit.remove(session)
    return True


def remove_if_same(session: Session, entries: list[Any], content: int) -> None:
    """Schedule the removal of an entry if its content is what this connection had."""
    for entry_id, fields in entries:
        payload = entry_payload(fields)
        if not content or (payload is not None and fingerprint(payload) == content):
            session.removals.append((entry_id, content))


def settle(session: Session) -> None:
    """Forget what the session had, as its stream was read to the end: the rest is not in Redis."""
    session.had = None
    session.inflight.sort()

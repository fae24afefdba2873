"""The history of a worker's sessions: database rows, written in batches by a thread.

The event loop only records what happened, under a lock held for a dictionary access. The thread
combines all news of a session into one row, writes about once a second, and retries while the
database is busy or unavailable. Delivery of messages does not depend on it: when too much waits,
news are dropped and counted.

    history = SessionHistory(boot_id, slot)
    history.start()
    history.opened(SessionOpened(...))       # the claim is through
    history.progress([SessionProgress(...)]) # changed sessions, every PROGRESS_INTERVAL_S
    history.closed(SessionProgress(...), SessionReason.IDLE)
    await asyncio.to_thread(history.stop)    # writes what waits
"""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from itertools import chain, islice
from typing import Any, Final, NamedTuple

from django.db import Error as DatabaseError
from django.db import close_old_connections, connection, transaction

from relay.ops import housekeeping, pending
from relay.queues.keys import SessionKey
from relay.sessions import models
from relay.sessions.models import RMB, Peer, Session, moment

logger = logging.getLogger(__name__)

PROGRESS_INTERVAL_S: Final = 15.0
"""Seconds between a worker's reports of the counters that changed."""

FLUSH_S: Final = 1.0
"""Seconds between two writes, and after a failed one."""

BATCH_ROWS: Final = 1000
"""Maximum number of rows in one transaction: short ones let the workers' writes take turns."""

INSERTED_ROWS: Final = 40
"""New rows in one statement, with less than 999 values, which every SQLite accepts. With a
statement for each row this thread would take the interpreter from the event loop each time."""

MAX_WAITING: Final = 200_000
"""Maximum number of sessions with unwritten news, a few hundred bytes each."""


class SessionOpened(NamedTuple):
    """A session that is held from now on.

    Attributes:
        connection, stream: number of the connection and id of the stream that carry it; None if it
            has a websocket of its own.
    """

    key: SessionKey | Peer
    epoch: int
    since: float
    remote: str = ""
    user_agent: str = ""
    connection: int | None = None
    stream: int | None = None


class SessionProgress(NamedTuple):
    """The counters of a session since its beginning."""

    key: SessionKey | Peer
    epoch: int
    messages_in: int = 0
    messages_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    backlog: int = 0
    drops: int = 0
    slowed: int = 0


@dataclass(slots=True)
class _News:
    """Unwritten news of one session."""

    opened: SessionOpened | None = None
    progress: SessionProgress | None = None
    closed_at: float | None = None
    reason: str = ""

    def add(self, later: _News) -> None:
        self.opened = later.opened or self.opened
        self.progress = later.progress or self.progress
        if later.closed_at is not None:
            self.closed_at, self.reason = later.closed_at, later.reason


_Identity = tuple[SessionKey | Peer, int]

COUNTERS: Final = SessionProgress._fields[2:]
_CHANGING: Final = (*COUNTERS, "closed_at", "close_reason")
_IDENTITY: Final = ("twin", "epoch", "sid_present", "sid")
_OWNER: Final = ("protocol", "peer", *_IDENTITY)
_PEER_IDENTITY: Final = ("protocol", "peer", "epoch")
_ORIGIN: Final = (
    "worker", "slot", "remote", "user_agent", "connection", "stream", "opened_at",
)  # fmt: skip


class SessionHistory:
    """Writes the rows of one worker's sessions. Only `stop` and `flush` block.

    Attributes:
        dropped: number of records given up because too many waited.
    """

    def __init__(
        self, boot_id: str, slot: int | str, clock: Callable[[], float] = time.time
    ) -> None:
        """
        Args:
            boot_id: boot id of the worker.
            slot: slot of the worker.
            clock: unix time in seconds.
        """
        self.dropped = 0
        self._boot_id = boot_id
        self._slot = str(slot)
        self._clock = clock
        self._lock = threading.Lock()
        self._news: dict[_Identity, _News] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="history", daemon=True)

    def start(self) -> None:
        """Start the writing thread."""
        self._thread.start()

    def stop(self, timeout_s: float = 5.0) -> None:
        """Write what waits and end the thread. Blocks: not to be called on the event loop."""
        self._stopping.set()
        self._thread.join(timeout_s)

    def opened(self, session: SessionOpened) -> None:
        """Record a session that began."""
        self._note((session.key, session.epoch), _News(opened=session))

    def progress(self, sessions: Iterable[SessionProgress]) -> None:
        """Record the counters of sessions that changed since the last call."""
        for each in sessions:
            self._note((each.key, each.epoch), _News(progress=each))

    def closed(self, session: SessionProgress, reason: str) -> None:
        """Record a session that ended, with its last counters."""
        news = _News(progress=session, closed_at=self._clock(), reason=reason)
        self._note((session.key, session.epoch), news)

    def _note(self, identity: _Identity, news: _News) -> None:
        with self._lock:
            waiting = self._news.get(identity)
            if waiting is not None:
                waiting.add(news)
            elif len(self._news) < MAX_WAITING:
                self._news[identity] = news
            else:
                self.dropped += 1

    # The thread

    def _run(self) -> None:
        housekeeping_at = time.monotonic() + housekeeping.INTERVAL_S
        pending_at = time.monotonic()
        try:
            while not self._stopping.wait(FLUSH_S):
                self._guarded(self.flush)
                if time.monotonic() >= pending_at:
                    self._guarded(pending.settle)
                    pending_at = time.monotonic() + pending.INTERVAL_S
                if time.monotonic() >= housekeeping_at:
                    housekeeping_at = time.monotonic() + housekeeping.INTERVAL_S
                    self._guarded(housekeeping.run_due)
            self._guarded(self.flush)
        finally:
            connection.close()

    def _guarded(self, work: Callable[[], bool]) -> None:
        """Run one step of the thread, and log an exception instead of ending the thread."""
        try:
            work()
        except Exception:
            logger.exception("session history failed")

    def flush(self) -> bool:
        """Write what waits, in the calling thread.

        Returns:
            Whether all of it was written; the rest waits for the next call.
        """
        with self._lock:
            batch, self._news = self._news, {}
        rows = iter(batch.items())
        while part := dict(islice(rows, BATCH_ROWS)):
            try:
                close_old_connections()
                self._write(part)
            except DatabaseError as error:
                logger.warning("session history put off: %s", error)
                self._put_back(part)
                self._put_back(dict(rows))
                return False
        return True

    def _put_back(self, unwritten: dict[_Identity, _News]) -> None:
        with self._lock:
            later, self._news = self._news, unwritten
        for identity, news in later.items():
            self._note(identity, news)

    def _write(self, part: dict[_Identity, _News]) -> None:
        # By `_is_peer`, then by stored identity: a statement must not write a row twice.
        begun: defaultdict[bool, dict[tuple[Any, ...], tuple[Any, ...]]] = defaultdict(dict)
        changed: defaultdict[bool, list[tuple[Any, ...]]] = defaultdict(list)
        for identity, news in part.items():
            peer = _is_peer(identity)
            if news.opened:
                owner, origin = _owning(identity), self._origin(news.opened)
                begun[peer][owner] = (*owner, *origin, *_changing(identity, news))
            else:
                changed[peer].append((*_changing(identity, news), *_identifying(identity)))
        # Statements of our own: with a thousand log-ins a second, building model instances took
        # this thread, and so the interpreter, four times as long.
        with transaction.atomic(), connection.cursor() as cursor:
            for peer, owned in begun.items():
                inserts = iter(owned.values())
                while some := list(islice(inserts, INSERTED_ROWS)):
                    cursor.execute(_insert_statement(peer, len(some)), [*chain(*some)])
            for peer, rows in changed.items():
                cursor.executemany(_update_statement(peer), rows)

    def _origin(self, opened: SessionOpened) -> tuple[Any, ...]:
        return (
            self._boot_id,
            self._slot,
            _storable(opened.remote)[: models.MAX_REMOTE_CHARS],
            _storable(opened.user_agent)[: models.MAX_USER_AGENT_CHARS],
            opened.connection,
            opened.stream,
            _storable_moment(opened.since),
        )


@cache
def _insert_statement(peer: bool, count: int) -> str:
    """Return the statement that inserts rows, or updates them if they exist.

    Rows are written a second time when the answer to a commit was lost.
    """
    quote = connection.ops.quote_name
    names = (*_OWNER, *_ORIGIN, *_CHANGING)
    columns = ", ".join(map(quote, names))
    row = f"({', '.join(['%s'] * len(names))})"
    values = ", ".join([row] * count)
    identity = ", ".join(map(quote, _PEER_IDENTITY if peer else _IDENTITY))
    which = f" WHERE {quote('twin')} IS NULL" if peer else ""
    changes = ", ".join(f"{quote(name)} = excluded.{quote(name)}" for name in _CHANGING)
    return (
        f"INSERT INTO {quote(Session._meta.db_table)} ({columns}) VALUES {values}"
        f" ON CONFLICT ({identity}){which} DO UPDATE SET {changes}"
    )


@cache
def _update_statement(peer: bool) -> str:
    """Return the statement that updates counters and end of one row.

    It reopens a row that was closed because its worker was taken for dead.
    """
    quote = connection.ops.quote_name
    values = ", ".join(f"{quote(name)} = %s" for name in _CHANGING)
    where = " AND ".join(f"{quote(name)} = %s" for name in (_PEER_IDENTITY if peer else _IDENTITY))
    if peer:
        where = f"{quote('twin')} IS NULL AND {where}"
    return f"UPDATE {quote(Session._meta.db_table)} SET {values} WHERE {where}"


def _is_peer(identity: _Identity) -> bool:
    return isinstance(identity[0], Peer)


def _owning(identity: _Identity) -> tuple[Any, ...]:
    key, epoch = identity
    if isinstance(key, Peer):
        return (*key, None, epoch, False, "")
    return (RMB, "", *_identifying(identity))


def _identifying(identity: _Identity) -> tuple[Any, ...]:
    key, epoch = identity
    if isinstance(key, Peer):
        return (*key, epoch)
    twin, sid = key
    return (twin, epoch, sid is not None, _storable(sid or ""))


def _changing(identity: _Identity, news: _News) -> tuple[Any, ...]:
    progress = news.progress or SessionProgress(*identity)
    return (
        *progress[2:],
        _storable_moment(news.closed_at),
        news.reason[: models.MAX_REASON_CHARS],
    )


def _storable_moment(unix_s: float | None) -> Any:
    """Return a time in the form that the database's driver takes."""
    if unix_s is None:
        return None
    return connection.ops.adapt_datetimefield_value(moment(unix_s))


def _storable(text: str) -> str:
    """Replace NUL characters: PostgreSQL cannot store them, and one would block its whole batch."""
    return text.replace("\0", "\ufffd")

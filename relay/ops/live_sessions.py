"""The sessions that are held now: the directory in Redis, with what the database adds to it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from redis import Redis

from proto.rmb import address
from proto.rmb.address import SessionKey
from proto.rmb.errors import RmbError
from relay.ops.redis_client import text
from relay.queues import keys
from relay.sessions.models import MAX_SID_CHARS, Session, moment

MAX_SHOWN: Final = 200
SCAN_COUNT: Final = 1000

# Sessions were let in under whatever bound was configured then.
MAX_SID_BYTES: Final = 4 * MAX_SID_CHARS

# A search for one twin looks through the whole directory; this many entries take about a second.
MAX_SCANNED: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class LiveSession:
    """One entry of the directory.

    Attributes:
        text: the session as Redis names it.
        row: its row in the database, which follows some seconds later.
    """

    text: str
    key: SessionKey
    epoch: int
    boot_id: str
    since: datetime
    remote: str
    row: Session | None = None


class LivePage(NamedTuple):
    """Sessions to be shown, and how many there are in all."""

    sessions: list[LiveSession]
    total: int


def find(client: Redis, search: str = "") -> LivePage:
    """Sessions of one twin, one session, or the first ones.

    Args:
        client: replies as bytes.
        search: `<twin>` for all sessions of a twin, `<twin>:<sid>` for one, empty for any.

    Raises:
        redis.exceptions.RedisError: Redis does not answer.
    """
    found: dict[str, LiveSession] = {}
    for name, value in _entries(client, search):
        entry = _read(name, value)
        if entry is not None:
            found[entry.text] = entry
        if len(found) >= MAX_SHOWN:
            break
    rows = _rows(found.values())
    sessions = [
        LiveSession(each.text, each.key, each.epoch, each.boot_id, each.since, each.remote,
                    rows.get((each.key, each.epoch)))
        for each in sorted(found.values(), key=lambda each: (each.key[0], each.text))
    ]  # fmt: skip
    return LivePage(sessions, int(client.hlen(keys.SESSIONS)))


def _entries(client: Redis, search: str) -> Iterator[tuple[bytes | str, bytes | str]]:
    exact = client.hget(keys.SESSIONS, search) if search else None
    if exact is not None:
        yield search, exact
    if search and not (search.isascii() and search.isdigit()):
        return
    pattern = f"{search}:*" if search else None
    scanned = client.hscan_iter(keys.SESSIONS, match=pattern, count=SCAN_COUNT)
    for _, entry in zip(range(MAX_SCANNED), scanned, strict=False):
        yield entry


def _read(name: bytes | str, value: bytes | str) -> LiveSession | None:
    """`<epoch> <boot id> <since> <remote>`; None for what is none of ours."""
    try:
        key = text(name)
        epoch, boot_id, since, *remote = text(value).split(" ", 3)
        return LiveSession(
            text=key,
            key=address.parse(key, MAX_SID_BYTES),
            epoch=int(epoch),
            boot_id=boot_id,
            since=moment(float(since)),
            remote=remote[0] if remote else "",
        )
    except (RmbError, ValueError, OverflowError, OSError):
        return None


def _rows(sessions: Iterable[LiveSession]) -> dict[tuple[SessionKey, int], Session]:
    epochs = [session.epoch for session in sessions]
    rows = Session.objects.filter(epoch__in=epochs) if epochs else []
    return {(row.key, row.epoch): row for row in rows}

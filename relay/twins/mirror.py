"""The mirror: the chain's twins in the table of this site, each with the block it was read at.

Three kinds of writers meet here: the follower, which tells what changed in a block; look-ups of the
workers; and the import of all twins. They ask different nodes, one of which may lag behind, so an
answer may be older than what is there. Each statement compares heights by itself, in the database:

    changed   wins unless a greater height is there
    read      wins only if its height is greater
    reverted  wins always: a fork was left

A row is stale from a height on when changes may have been missed; then any answer read there or
above wins. Rows of the registry give way to the chain's.

A twin whose account anybody can sign for is not kept, as if the chain did not have it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from django.db import connection, transaction
from django.db.models import Max, Q, QuerySet
from django.utils import timezone

from proto.chain import relays
from proto.chain.twin import Twin as ChainTwin
from proto.identity.accounts import WEAK_ACCOUNTS
from proto.identity.bounds import PUBLIC_KEY_BYTES
from relay.twins.models import Twin
from relay.twins.source import RELAY_SEPARATOR, TwinRecord, relay_names

CHUNK: Final = 500
"""Rows asked for at once; below what the oldest SQLite takes as parameters."""

_OTHER: Final = "{table}.source <> excluded.source"
_CHANGED: Final = (
    f"{_OTHER} OR {{table}}.stale_since IS NOT NULL OR {{table}}.height <= excluded.height"
)
_READ: Final = (
    f"{_OTHER} OR {{table}}.stale_since <= excluded.height"
    " OR ({table}.stale_since IS NULL AND {table}.height < excluded.height)"
)
_ALWAYS: Final = "true"


class Reconciled(NamedTuple):
    """What is known after a look-up.

    Attributes:
        records: the newest of each twin; those that do not exist are missing.
        stale: some of them may have changed all the same: the node was behind the last flush.
    """

    records: dict[int, TwinRecord]
    stale: bool


class _Row(NamedTuple):
    record: TwinRecord
    relays: str  # as the chain has them
    stale_since: int | None


def keep_changed(changes: Iterable[tuple[ChainTwin, int]]) -> int:
    """Take over what events told: twins and heights, the later one of a twin last.

    Returns:
        How many of the twins were new to the mirror.
    """
    latest = {twin.id: (twin, height) for twin, height in changes if provable(twin)}
    there = sum(_mirrored().filter(id__in=chunk).count() for chunk in _chunks(latest))
    _write(latest.values(), _CHANGED)
    return len(latest) - there


def keep_read(twins: Iterable[ChainTwin], height: int) -> None:
    """Take over what was read at a block."""
    _write([(twin, height) for twin in twins if provable(twin)], _READ)


def keep_reverted(twins: Mapping[int, ChainTwin | None], height: int) -> None:
    """Take over what is true after a fork was left; None is a twin that is no more."""
    there = [twin for twin in twins.values() if twin is not None and provable(twin)]
    _write([(twin, height) for twin in there], _ALWAYS)
    for chunk in _chunks(twins.keys() - {twin.id for twin in there}):
        _mirrored().filter(id__in=chunk).delete()


def mark_stale(height: int) -> None:
    """Changes may have been missed before this block."""
    _mirrored().update(stale_since=height)


def drop_unseen(height: int) -> int:
    """Remove what is stale from before a block although all twins were read from there on.

    Returns:
        How many twins the chain does not have.
    """
    return _mirrored().filter(stale_since__lte=height).delete()[0]


def reconcile(ids: Sequence[int], found: Mapping[int, ChainTwin], height: int) -> Reconciled:
    """Bring the answer of a look-up and the mirror together.

    Args:
        ids: what was asked for.
        found: what the node has.
        height: of the block it was read at.
    """
    rows = _rows(ids)
    news = [twin for twin in found.values() if not _same(rows.get(twin.id), twin, height)]
    gone = [twin for twin in rows if twin not in found]
    if news:
        keep_read(news, height)
    if gone:
        unknown = Q(stale_since__isnull=True, height__lt=height) | Q(stale_since__lte=height)
        _mirrored().filter(unknown, id__in=gone).delete()
    if news or gone:
        rows = _rows(ids)
    stale = any(row.stale_since is not None for row in rows.values())
    return Reconciled({twin: row.record for twin, row in rows.items()}, stale)


def records(ids: Sequence[int]) -> dict[int, TwinRecord]:
    """What the mirror has of some twins; it may be old."""
    return {twin: row.record for twin, row in _rows(ids).items()}


def highest_id() -> int:
    """The highest twin in the mirror, 0 when it is empty."""
    highest: int | None = _mirrored().aggregate(highest=Max("id"))["highest"]
    return highest or 0


def provable(twin: ChainTwin) -> bool:
    """Whether the twin's signatures prove anything; to the relay the others do not exist."""
    return twin.account not in WEAK_ACCOUNTS


def record_of(twin: ChainTwin, height: int) -> TwinRecord:
    """A twin of the chain as the relay works with it."""
    names = relay_names(_relays_text(twin))
    return TwinRecord(twin.id, twin.account, _key(twin), names, height)


def _mirrored() -> QuerySet[Twin]:
    return Twin.objects.filter(source=Twin.Source.CHAIN)


def _rows(ids: Iterable[int]) -> dict[int, _Row]:
    # Plain values: an object of the model for each would be half of what a look-up costs.
    fields = ("id", "account", "encryption_key", "relays", "height", "stale_since")
    return {
        twin: _Row(
            TwinRecord(twin, bytes(account), _kept(key), relay_names(relays), height), relays, stale
        )
        for chunk in _chunks(ids)
        for twin, account, key, relays, height, stale in _mirrored()
        .filter(id__in=chunk)
        .order_by()
        .values_list(*fields)
    }


def _chunks(ids: Iterable[int]) -> list[list[int]]:
    every = list(ids)
    return [every[first : first + CHUNK] for first in range(0, len(every), CHUNK)]


def _same(row: _Row | None, twin: ChainTwin, height: int) -> bool:
    if row is None or row.stale_since is not None:
        return False
    same = row.record[:-1] == record_of(twin, height)[:-1]  # all but the version
    return same and row.relays == _relays_text(twin)


def _kept(key: bytes | None) -> bytes | None:
    return bytes(key) if key else None  # PostgreSQL gives a view of its bytes


def _key(twin: ChainTwin) -> bytes | None:
    # The chain takes anything for a key; whoever would encrypt with it needs one.
    return twin.pk if twin.pk is not None and len(twin.pk) == PUBLIC_KEY_BYTES else None


def _relays_text(twin: ChainTwin) -> str:
    # PostgreSQL cannot hold a NUL, and no relay has it in its name.
    return RELAY_SEPARATOR.join(filter(None, relays.split(twin.relay))).replace("\0", "\ufffd")


def _write(twins: Iterable[tuple[ChainTwin, int]], wins: str) -> None:
    # In one order, so that two writers on PostgreSQL wait for each other instead of dying.
    every = sorted(twins, key=lambda each: each[0].id)
    if not every:
        return
    table = connection.ops.quote_name(Twin._meta.db_table)
    now = connection.ops.adapt_datetimefield_value(timezone.now())
    statement = f"""
        INSERT INTO {table} (id, account, pk, relays, source, updated, version, height)
        VALUES (%s, %s, %s, %s, '{Twin.Source.CHAIN.value}', %s, 1, %s)
        ON CONFLICT (id) DO UPDATE SET
            account = excluded.account, pk = excluded.pk, relays = excluded.relays,
            source = excluded.source, updated = excluded.updated, version = {table}.version + 1,
            height = excluded.height, stale_since = NULL
        WHERE {wins.format(table=table)}
    """
    # One transaction: on SQLite a commit for each twin would take the most of a look-up's time.
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.executemany(
            statement,
            [
                (twin.id, twin.account, _key(twin), _relays_text(twin), now, height)
                for twin, height in every
            ],
        )

"""The mirror: the chain's twins in the table of this site, each with the block it was read at.

There are three kinds of writers: the follower, which reports the changes of a block; look-ups of
the workers; and the import of all twins. They query different nodes, and a node may be behind, so
an answer may be older than the row in the table. Each statement compares heights in the database:

    changed   wins unless the row has a greater height
    read      wins only if its height is greater
    reverted  wins always: a fork was abandoned

A row is stale from a height on if changes may have been missed; then any answer read at that height
or above wins. Rows of the registry are replaced by those of the chain.

A twin whose account anybody can sign for is not stored, as if the chain did not have it.
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
"""Rows queried at once; fewer than the parameters that the oldest supported SQLite accepts."""

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
        records: newest record of each twin; twins that do not exist are missing.
        stale: whether some may have changed nevertheless, because the node was behind the last
            flush.
    """

    records: dict[int, TwinRecord]
    stale: bool


class _Row(NamedTuple):
    record: TwinRecord
    relays: str  # as on the chain
    stale_since: int | None


def keep_changed(changes: Iterable[tuple[ChainTwin, int]]) -> int:
    """Store twins that events reported, with their heights; the latest change of a twin comes last.

    Returns:
        Number of twins that are new to the mirror.
    """
    latest = {twin.id: (twin, height) for twin, height in changes if provable(twin)}
    there = sum(_mirrored().filter(id__in=chunk).count() for chunk in _chunks(latest))
    _write(latest.values(), _CHANGED)
    return len(latest) - there


def keep_read(twins: Iterable[ChainTwin], height: int) -> None:
    """Store twins that were read at a block."""
    _write([(twin, height) for twin in twins if provable(twin)], _READ)


def keep_reverted(twins: Mapping[int, ChainTwin | None], height: int) -> None:
    """Store the state after a fork was abandoned; None is a twin that does not exist any more."""
    there = [twin for twin in twins.values() if twin is not None and provable(twin)]
    _write([(twin, height) for twin in there], _ALWAYS)
    for chunk in _chunks(twins.keys() - {twin.id for twin in there}):
        _mirrored().filter(id__in=chunk).delete()


def mark_stale(height: int) -> None:
    """Mark all twins stale, because changes may have been missed before this block."""
    _mirrored().update(stale_since=height)


def drop_unseen(height: int) -> int:
    """Delete twins that are stale from before a block although all twins were read from there on.

    Returns:
        Number of twins that the chain does not have any more.
    """
    return _mirrored().filter(stale_since__lte=height).delete()[0]


def reconcile(ids: Sequence[int], found: Mapping[int, ChainTwin], height: int) -> Reconciled:
    """Merge the answer of a look-up with the mirror.

    Args:
        ids: twins that were requested.
        found: twins that the node has.
        height: height of the block at which they were read.
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
    """Return the records that the mirror has of some twins; they may be old."""
    return {twin: row.record for twin, row in _rows(ids).items()}


def highest_id() -> int:
    """Return the highest twin id in the mirror, 0 if it is empty."""
    highest: int | None = _mirrored().aggregate(highest=Max("id"))["highest"]
    return highest or 0


def provable(twin: ChainTwin) -> bool:
    """Check whether the twin's signatures prove who signed; the relay ignores other twins."""
    return twin.account not in WEAK_ACCOUNTS


def record_of(twin: ChainTwin, height: int) -> TwinRecord:
    """Return the record of a twin of the chain."""
    names = relay_names(_relays_text(twin))
    return TwinRecord(twin.id, twin.account, _key(twin), names, height)


def _mirrored() -> QuerySet[Twin]:
    return Twin.objects.filter(source=Twin.Source.CHAIN)


def _rows(ids: Iterable[int]) -> dict[int, _Row]:
    # Plain values: creating a model object for each would be half the cost of a look-up.
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
    return bytes(key) if key else None  # PostgreSQL returns a memoryview


def _key(twin: ChainTwin) -> bytes | None:
    # The chain accepts any bytes as a key; drop those that cannot be used to encrypt.
    return twin.pk if twin.pk is not None and len(twin.pk) == PUBLIC_KEY_BYTES else None


def _relays_text(twin: ChainTwin) -> str:
    # PostgreSQL cannot store NUL, and no relay has it in its name.
    return RELAY_SEPARATOR.join(filter(None, relays.split(twin.relay))).replace("\0", "\ufffd")


def _write(twins: Iterable[tuple[ChainTwin, int]], wins: str) -> None:
    # Sorted, so that two writers on PostgreSQL wait for each other instead of deadlocking.
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
    # One transaction: on SQLite a commit for each twin would take most of a look-up's time.
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.executemany(
            statement,
            [
                (twin.id, twin.account, _key(twin), _relays_text(twin), now, height)
                for twin, height in every
            ],
        )

"""Models of the tables of results, and their columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from django.db import connections, router
from django.db.models import DateTimeField

from relay.analytics.models import lattice, results
from relay.analytics.models.results import Result

MODEL_OF: Final[dict[str, type[Result]]] = {
    "relay_pair_hour": results.RelayPairHour,
    "protocol_hour": results.ProtocolHour,
    "traffic_matrix": results.TrafficMatrix,
    "storms": results.Storm,
    "concurrency": results.Concurrency,
    "federation_slo": results.FederationSlo,
    "federation_rank": results.FederationRank,
    "anomalies": results.Anomaly,
    "top_twins": results.TopTwin,
    "hot_pairs": results.HotPair,
    "top_keys": results.TopKey,
    "usage": results.Usage,
    "audit": results.DeliveryAudit,
    "lattice_calls": lattice.LatticeHour,
    "lattice_slow": lattice.LatticeSlow,
    "lattice_forged": lattice.LatticeForged,
}
"""Model of each table that the catalogue keeps in the database."""


def columns(table: str) -> list[str]:
    """Return the columns of a table, in the order of its schema.

    Raises:
        KeyError: the table is not in the database.
    """
    return [field.name for field in MODEL_OF[table]._meta.fields if not field.primary_key]


def replace(table: str, period: str, batches: Iterable[Sequence[Mapping[str, Any]]]) -> None:
    """Replace the rows of a period; only inside a transaction.

    Rows are inserted without model objects: a month of usage has hundreds of thousands, and SQLite
    blocks other writers meanwhile. Only times need an adaptation to the database. NUL characters,
    which a session id may contain, are replaced, because only SQLite stores them.

    Raises:
        KeyError: the table is not in the database, or a row lacks a column.
    """
    model = MODEL_OF[table]
    connection = connections[router.db_for_write(model)]
    fields = [field for field in model._meta.fields if not field.primary_key]
    times = [place for place, field in enumerate(fields) if isinstance(field, DateTimeField)]
    names = ", ".join(connection.ops.quote_name(field.column or field.name) for field in fields)
    places = ", ".join(["%s"] * len(fields))
    into = connection.ops.quote_name(model._meta.db_table)
    model._default_manager.filter(period=period).delete()
    with connection.cursor() as cursor:
        for rows in batches:
            written = [[_storable(row[field.name]) for field in fields] for row in rows]
            for place in times:
                for row in written:
                    row[place] = connection.ops.adapt_datetimefield_value(row[place])
            cursor.executemany(f"INSERT INTO {into} ({names}) VALUES ({places})", written)


def _storable(value: Any) -> Any:
    return value.replace("\0", "\ufffd") if isinstance(value, str) else value

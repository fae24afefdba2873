"""The twin source `registry`: the table of this site, read in a thread to not block the loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from django.db import Error as DatabaseError
from django.db import connection
from django.db.models import Max

from relay.twins.models import RECORD_FIELDS, Twin, record_of
from relay.twins.source import TwinRecord, TwinSourceError
from relay.twins.table import Answer, TwinTable


class RegistrySource:
    """`relay.twins.source.TwinSource` over the Django model."""

    def __init__(self) -> None:
        self.away = ""
        self._table = TwinTable()

    async def fetch(self, ids: Sequence[int]) -> dict[int, TwinRecord]:
        return await self._query(lambda: _fetch(ids))

    async def highest_id(self) -> int:
        return await self._query(_highest_id)

    async def close(self) -> None:
        """Close the connection and end the thread, after its query in progress."""
        await self._table.close()

    async def _query(self, question: Callable[[], Answer]) -> Answer:
        try:
            answer = await self._table.ask(question)
        except DatabaseError as error:
            self.away = f"database: {error}"
            raise TwinSourceError(self.away) from error
        self.away = ""
        return answer

    def figures(self) -> dict[str, float]:
        return {}


def _fetch(ids: Sequence[int]) -> dict[int, TwinRecord]:
    # Raw SQL: when many clients sign in at once, building the ORM's query took most of the time of
    # this thread, and so kept the interpreter from the loop.
    with connection.cursor() as cursor:
        cursor.execute(_select_statement(len(ids)), list(ids))
        return {row[0]: record_of(*row) for row in cursor.fetchall()}


def _select_statement(count: int) -> str:
    """Return a statement that selects this many twins, with the fields that `record_of` takes."""
    quote, meta = connection.ops.quote_name, Twin._meta
    names = {field.name: quote(str(field.column)) for field in meta.concrete_fields}
    columns = ", ".join(names[name] for name in RECORD_FIELDS)
    places = ", ".join(["%s"] * count)
    return f"SELECT {columns} FROM {quote(meta.db_table)} WHERE {names['id']} IN ({places})"


def _highest_id() -> int:
    highest: int | None = Twin.objects.aggregate(highest=Max("id"))["highest"]
    return highest or 0

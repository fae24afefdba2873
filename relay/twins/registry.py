"""The twin source `registry`: the table of this site, read in a thread so that no loop waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from django.db import Error as DatabaseError
from django.db import close_old_connections, connection
from django.db.models import Max

from relay.twins.models import Twin
from relay.twins.source import TwinRecord, TwinSourceError

Answer = TypeVar("Answer")


class RegistrySource:
    """`relay.twins.source.TwinSource` over the Django model."""

    def __init__(self) -> None:
        self.away = ""
        # One thread, so one connection: look-ups come merged, more would only idle.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="twins")

    async def fetch(self, ids: Sequence[int]) -> dict[int, TwinRecord]:
        return await self._query(lambda: _fetch(ids))

    async def highest_id(self) -> int:
        return await self._query(_highest_id)

    async def close(self) -> None:
        """Close the connection and end the thread, after what it is doing."""
        await asyncio.get_running_loop().run_in_executor(self._thread, lambda: connection.close())
        self._thread.shutdown()

    async def _query(self, function: Callable[[], Answer]) -> Answer:
        loop = asyncio.get_running_loop()
        try:
            answer = await loop.run_in_executor(self._thread, _guarded, function)
        except TwinSourceError as error:
            self.away = str(error)
            raise
        self.away = ""
        return answer

    def figures(self) -> dict[str, float]:
        return {}


def _guarded(function: Callable[[], Answer]) -> Answer:
    # Django checks connections around each request; outside of one it is up to us, or one that the
    # server closed would be used for ever.
    close_old_connections()
    try:
        return function()
    except DatabaseError as error:
        raise TwinSourceError(f"database: {error}") from error
    finally:
        close_old_connections()


def _fetch(ids: Sequence[int]) -> dict[int, TwinRecord]:
    return {twin.id: twin.record() for twin in Twin.objects.filter(id__in=ids)}


def _highest_id() -> int:
    highest: int | None = Twin.objects.aggregate(highest=Max("id"))["highest"]
    return highest or 0

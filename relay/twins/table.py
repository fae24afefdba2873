"""The table of twins, asked in a thread so that no loop waits for the database."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from django.db import close_old_connections, connection

Answer = TypeVar("Answer")


class TwinTable:
    """One thread, so one connection: look-ups come merged, more would only idle."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="twins")

    async def ask(self, question: Callable[[], Answer]) -> Answer:
        """The answer to a query.

        Raises:
            django.db.Error: the database has none.
        """
        return await asyncio.get_running_loop().run_in_executor(self._thread, _guarded, question)

    async def close(self) -> None:
        """Close the connection and end the thread, after what it is doing."""
        await asyncio.get_running_loop().run_in_executor(self._thread, lambda: connection.close())
        self._thread.shutdown()


def _guarded(question: Callable[[], Answer]) -> Answer:
    # Django checks connections around each request; outside of one it is up to us, or one that the
    # server closed would be used for ever.
    close_old_connections()
    try:
        return question()
    finally:
        close_old_connections()

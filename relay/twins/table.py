"""The table of twins, queried in a thread so as not to block the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from django.db import close_old_connections, connection

Answer = TypeVar("Answer")


class TwinTable:
    """One thread, and so one connection: look-ups arrive in batches, so more would be idle."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="twins")

    async def ask(self, question: Callable[[], Answer]) -> Answer:
        """Run a query in the thread and return its answer.

        Raises:
            django.db.Error: the database does not answer.
        """
        return await asyncio.get_running_loop().run_in_executor(self._thread, _guarded, question)

    async def close(self) -> None:
        """Close the connection and end the thread, after its query in progress."""
        await asyncio.get_running_loop().run_in_executor(self._thread, lambda: connection.close())
        self._thread.shutdown()


def _guarded(question: Callable[[], Answer]) -> Answer:
    # Django checks connections around each request. Outside of requests this must be done here, or
    # a connection that the server closed would be used for ever.
    close_old_connections()
    try:
        return question()
    finally:
        close_old_connections()

"""Replacement of a test's Django database by another one, for what SQLite cannot show."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.db import ConnectionHandler, connections

from rmbsite.database import settings_of

Use = Callable[[], None]


@contextmanager
def in_database(url: str, folder: Path) -> Iterator[Use]:
    """Use a migrated database in this thread, and in each that calls the yielded function.

    The test must have unblocked Django's databases.
    """
    ours = connections["default"]
    opened: list[Any] = []

    def here() -> None:
        handler = ConnectionHandler({"default": settings_of(url, folder)})
        opened.append(handler["default"])
        handler["default"].inc_thread_sharing()
        connections["default"] = handler["default"]

    here()
    try:
        yield here
    finally:
        for connection in opened:
            connection.close()
        connections["default"] = ours

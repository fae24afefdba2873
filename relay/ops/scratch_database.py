"""A new, empty database with all tables, which replaces the site's for the duration of a block."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from django.contrib.contenttypes.models import ContentType
from django.core.management import call_command
from django.db import DEFAULT_DB_ALIAS, connections
from django.db.utils import ConnectionHandler

SQLITE: Final = {
    "ENGINE": "django.db.backends.sqlite3",
    "OPTIONS": {"init_command": "PRAGMA synchronous=OFF"},  # not needed after a crash
}


@contextlib.contextmanager
def scratch_database() -> Iterator[None]:
    """Give this thread a migrated SQLite database in a temporary folder; delete it afterwards."""
    site = connections[DEFAULT_DB_ALIAS]
    with tempfile.TemporaryDirectory(prefix="rmb-scratch-") as name:
        file = str(Path(name, "scratch.sqlite3"))
        scratch = ConnectionHandler({DEFAULT_DB_ALIAS: {**SQLITE, "NAME": file}})[DEFAULT_DB_ALIAS]
        connections[DEFAULT_DB_ALIAS] = scratch
        ContentType.objects.clear_cache()  # cached ids are specific to a database
        try:
            call_command("migrate", verbosity=0, skip_checks=True)
            yield
        finally:
            scratch.close()
            connections[DEFAULT_DB_ALIAS] = site
            ContentType.objects.clear_cache()

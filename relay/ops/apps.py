"""Django app of `relay.ops`."""

from __future__ import annotations

import contextlib
import importlib
import stat
from pathlib import Path
from typing import Any, Final

from django.apps import AppConfig
from django.db.backends.signals import connection_created

OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


class OpsAppConfig(AppConfig):
    name = "relay.ops"
    label = "relay_ops"
    verbose_name = "Operations"

    def ready(self) -> None:
        # Registers the system checks.
        importlib.import_module("relay.ops.checks")
        connection_created.connect(make_private, dispatch_uid="relay.ops.make_private")


def make_private(connection: Any, **_: Any) -> None:
    """Make the SQLite file unreadable for other users: it is created with what the umask allows."""
    if connection.vendor != "sqlite" or connection.is_in_memory_db():
        return
    for end in ("", "-wal", "-shm"):
        path = Path(f"{connection.settings_dict['NAME']}{end}")
        with contextlib.suppress(FileNotFoundError, PermissionError):  # not ours
            if path.stat().st_mode & OTHERS:
                path.chmod(0o600)

"""A restore of every table, on both databases."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.apps import apps
from django.contrib.contenttypes.models import ContentType

from relay.access.actor import SYSTEM
from relay.audit import services as audit
from relay.audit.models import AuditEntry
from relay.ops import backup, backup_file
from tests.support.every_model import fill
from tests.support.in_database import in_database
from tests.support.postgres_server import PostgresServer
from tests.support.relay_process import migrated_folder


@contextmanager
def database(url: str, folder: Path) -> Iterator[None]:
    """Use a migrated database that has its own ids of content types."""
    ContentType.objects.clear_cache()
    try:
        with in_database(url, folder):
            yield
    finally:
        ContentType.objects.clear_cache()


def new_sqlite(folder: Path, name: str) -> str:
    return f"sqlite:///{shutil.copy(migrated_folder() / 'relay.sqlite3', folder / name)}"


def in_file(path: Path) -> dict[str, list[Any]]:
    """Return the rows of a backup, by table."""
    with backup_file.opened(path) as archive:
        return {
            label: [json.loads(line) for line in backup_file.lines(archive, label)]
            for label in backup._labels()
        }


def in_tables() -> dict[str, list[Any]]:
    """Return the rows of the database by table, without the audit entry of the restore itself."""
    rows = {label: [json.loads(each) for each in backup._rows(label)] for label in backup._labels()}
    assert rows["relay_audit.auditentry"].pop()["fields"]["action"] == "backup.restore"
    return rows


def test_every_table_on_both_databases(
    tmp_path: Path, postgres: PostgresServer, django_db_blocker: Any
) -> None:
    """Data goes from SQLite to PostgreSQL and back, each restore using the backup of the last."""
    first, second = tmp_path / "first.zip", tmp_path / "second.zip"
    with django_db_blocker.unblock():
        with database(new_sqlite(tmp_path, "source"), tmp_path):
            fill(backup._labels())
            backup.make(first, actor=SYSTEM)
            backup.verify(first)
        assert any(row["fields"]["type"] == "totp" for row in in_file(first)["mfa.authenticator"])
        with database(postgres.make_migrated_database("every_table"), tmp_path):
            backup.restore(first, actor=SYSTEM)
            assert in_tables() == in_file(first)
            audit.verify()
            for label in backup._labels():
                assert apps.get_model(label)._base_manager.exists(), label
            backup.make(second, actor=SYSTEM)
            backup.verify(second)
        with database(new_sqlite(tmp_path, "target"), tmp_path):
            backup.restore(second, actor=SYSTEM)
            assert in_tables() == in_file(second)
            audit.verify()
            assert AuditEntry.objects.count() == len(in_file(second)["relay_audit.auditentry"]) + 1

"""Database triggers that make the audit log append-only, in SQLite and PostgreSQL.

They protect against mistakes and against code that has the database's ordinary rights. The owner of
the database can drop them; the hash chain detects changes made after that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

TABLE: Final = "relay_audit_auditentry"
REFUSED: Final = "the audit log is append-only"

INSTALL: Final = {
    "sqlite": (
        f"CREATE TRIGGER {TABLE}_no_update BEFORE UPDATE ON {TABLE}"
        f" BEGIN SELECT RAISE(ABORT, '{REFUSED}'); END",
        f"CREATE TRIGGER {TABLE}_no_delete BEFORE DELETE ON {TABLE}"
        f" BEGIN SELECT RAISE(ABORT, '{REFUSED}'); END",
        # REPLACE deletes without firing the trigger of deletions.
        f"CREATE TRIGGER {TABLE}_no_replace BEFORE INSERT ON {TABLE}"
        f" WHEN EXISTS (SELECT 1 FROM {TABLE} WHERE number >= NEW.number)"
        f" BEGIN SELECT RAISE(ABORT, '{REFUSED}'); END",
    ),
    "postgresql": (
        f"CREATE FUNCTION {TABLE}_refuse() RETURNS trigger LANGUAGE plpgsql AS"
        f" $$ BEGIN RAISE EXCEPTION '{REFUSED}'; END $$",
        f"CREATE TRIGGER {TABLE}_no_change BEFORE UPDATE OR DELETE ON {TABLE}"
        f" FOR EACH ROW EXECUTE FUNCTION {TABLE}_refuse()",
        f"CREATE TRIGGER {TABLE}_no_truncate BEFORE TRUNCATE ON {TABLE}"
        f" FOR EACH STATEMENT EXECUTE FUNCTION {TABLE}_refuse()",
    ),
}

REMOVE: Final = {
    "sqlite": (
        f"DROP TRIGGER IF EXISTS {TABLE}_no_update",
        f"DROP TRIGGER IF EXISTS {TABLE}_no_delete",
        f"DROP TRIGGER IF EXISTS {TABLE}_no_replace",
    ),
    "postgresql": (f"DROP FUNCTION IF EXISTS {TABLE}_refuse() CASCADE",),
}


def install(apps: Any, schema_editor: Any) -> None:
    """Create the triggers, in a migration."""
    _run(INSTALL, schema_editor.connection)


def remove(apps: Any, schema_editor: Any) -> None:
    """Drop the triggers, in a reversed migration, and in tests, which empty all tables."""
    _run(REMOVE, schema_editor.connection)


def _run(statements: Mapping[str, tuple[str, ...]], connection: Any) -> None:
    with connection.cursor() as cursor:
        for statement in statements[connection.vendor]:
            cursor.execute(statement)

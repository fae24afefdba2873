"""Backups: what operators decided and know, in one file that can be restored into any database.

A backup is a zip file of

    manifest.json          its contents: release, migrations, rows and digest of each table
    database/<table>.jsonl one row per line, as Django's serializer writes it
    settings/rmb.toml      the configuration file, if there is one; without its secrets and
                           comments, unless secrets are requested
    settings/values.json   every setting that is not secret
    secrets/secret_key     only on request: signs cookies and the audit log
    secrets/secret_key_fallbacks  former secret keys, if any, in the form of the setting

All tables are read at the same moment, so they are consistent. The digest of a table does not
depend on the order of its rows: a restore compares the file with what the database holds
afterwards, and is rolled back if they differ. `verify` does the same in a scratch database. Queues
are not included: they live in Redis, for an hour at most, and have Redis' own persistence.
"""

from __future__ import annotations

import contextlib
import json
import os
import zipfile
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from django.apps import apps
from django.conf import settings
from django.core import serializers
from django.core.management.color import no_style
from django.core.serializers.base import DeserializationError
from django.core.serializers.json import DjangoJSONEncoder
from django.db import Error as DatabaseError
from django.db import connection, models, transaction
from django.db.migrations.recorder import MigrationRecorder

from relay.access import matrix
from relay.access.actor import Actor
from relay.audit import services as audit
from relay.ops import backup_file, backup_keys, backup_settings, whole_file
from relay.ops.backup_file import (
    MANIFEST,
    OLD_SECRETS,
    SECRET,
    BackupError,
    Digest,
    Manifest,
    Table,
    line_of,
    lines,
    opened,
)
from relay.ops.scratch_database import scratch_database

CONFIG_FILE: Final = ("RMB_CONFIG", "rmb.toml")
"""Variable that names the configuration file, and the default name."""

LEFT_OUT: Final = frozenset(
    {
        *("contenttypes.contenttype", "auth.permission", "sessions.session"),
        "relay_alarms.evaluation",
        *("relay_access.failedtries", "relay_access.cacheentry"),
        "relay_ops.pendingdecision",
    }
)
"""Tables that are not in a backup: created by migrations, or useless elsewhere."""

MADE_BY_MIGRATIONS: Final = frozenset({"auth.group"})
"""Tables that migrations fill, so they are never empty."""

HISTORY: Final = frozenset({"relay_sessions.session", "relay_history.point"})

Progress = Callable[[str], None]


class _Exact(DjangoJSONEncoder):
    """Encoder that keeps microseconds, which Django's cuts: the audit log is hashed with them."""

    def default(self, o: Any) -> Any:
        return o.isoformat() if isinstance(o, datetime) else super().default(o)


def make(
    path: Path,
    *,
    actor: Actor,
    history: bool = True,
    secrets: bool = False,
    say: Progress = lambda text: None,
) -> Manifest:
    """Write a backup that only its owner can read; an existing file is not replaced.

    Args:
        path: Path of the file.
        actor: User or program that asks for it.
        history: Whether to include the rows of sessions and the history of the relay's figures.
        secrets: Whether to include the site's secret key.
        say: Called with a line for each table.

    Raises:
        BackupError: The file cannot be written, or the database cannot be read.
    """
    actor.require(matrix.permission_of("backup.make"))
    try:
        with (
            whole_file.written(path, new=True, mode=whole_file.PRIVATE) as file,
            zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive,
        ):
            manifest = _write(archive, history=history, secrets=secrets, say=say)
            archive.writestr(MANIFEST, manifest.text())
    except FileExistsError:
        raise BackupError(f"{path} exists already: choose another name") from None
    except OSError as error:
        raise BackupError(f"cannot write {path}: {error.strerror or error}") from None
    except DatabaseError as error:
        raise BackupError(f"database: {line_of(error)}") from None
    _note(actor, "backup.make", path, manifest)
    return manifest


def restore(
    path: Path,
    *,
    actor: Actor,
    unverified_log: bool = False,
    say: Progress = lambda text: None,
) -> Manifest:
    """Restore a backup into an empty database, completely or not at all.

    Args:
        path: Path of the file.
        actor: User or program that asks for it.
        unverified_log: Whether to accept an audit log that this site cannot verify.
        say: Called with a line for each table, and for such a log.

    Raises:
        LogError: The site lacks the key of the audit log, or the log was changed.
        BackupError: The file is damaged or of a newer release, the database is not empty or cannot
            take it, or what it took differs from the file.
    """
    actor.require(matrix.permission_of("backup.restore"))
    manifest = backup_file.verify(path)
    try:
        _check_target(manifest)
        with opened(path) as archive:
            doubt = backup_keys.doubt(path, archive)
            if doubt is not None and not unverified_log:
                raise doubt
            _load(archive, manifest, say)
    except DeserializationError as error:
        raise BackupError(f"{path}: {line_of(error)}") from None
    except DatabaseError as error:
        raise BackupError(f"database: {line_of(error)}") from None
    _note(actor, "backup.restore", path, manifest, log_verified=doubt is None)
    if doubt is not None:
        say(
            f"the audit log can be read, but neither verified nor pruned: {doubt.broken}. Where "
            "nothing but keys are missing, put them into site.secret_key_fallbacks"
        )
    return manifest


def verify(path: Path, *, say: Progress = lambda text: None) -> Manifest:
    """Read a backup from end to end, restore it into a scratch database and compare the two.

    Args:
        path: Path of the file.
        say: Called if a restore on this site would refuse the audit log.

    Raises:
        BackupError: The file is damaged or of a newer release, or cannot be restored.
    """
    manifest = backup_file.verify(path)
    try:
        with scratch_database(), opened(path) as archive:
            _check_target(manifest)
            doubt = backup_keys.doubt(path, archive)
            _load(archive, manifest, lambda text: None)
    except DeserializationError as error:
        raise BackupError(f"{path}: {line_of(error)}") from None
    except DatabaseError as error:
        raise BackupError(f"scratch database: {line_of(error)}") from None
    if doubt is not None:
        say(f"rmb_restore would refuse it on this site: {doubt.detail}")
    return manifest


def _note(actor: Actor, action: str, path: Path, manifest: Manifest, **more: bool) -> None:
    """Record the action once it is done: a lock held during it would block all other changes."""
    with audit.change(actor, action, target=path.name) as change:
        change.after = {
            "made": manifest.made,
            "rows": sum(table.rows for table in manifest.tables),
            "secrets": manifest.secrets,
            **more,
        }


def _write(archive: zipfile.ZipFile, *, history: bool, secrets: bool, say: Progress) -> Manifest:
    tables = []
    with _one_moment():
        migrations = _applied()
        for label in _labels():
            if label in HISTORY and not history:
                continue
            digest = Digest()
            with archive.open(f"database/{label}.jsonl", "w", force_zip64=True) as file:
                for line in _rows(label):
                    digest.add(line)
                    file.write(f"{line}\n".encode())
            tables.append(digest.table(label))
            say(f"{label}: {digest.rows:,} rows")
    archive.writestr("settings/values.json", json.dumps(backup_settings.values(), indent=1))
    file_path = Path(os.environ.get(*CONFIG_FILE))
    if file_path.is_file():
        text = file_path.read_text()
        shown = text if secrets else backup_settings.without_secrets(text)
        if shown is not None:
            archive.writestr("settings/rmb.toml", shown)
    if secrets:
        archive.writestr(SECRET, settings.SECRET_KEY)
        if settings.SECRET_KEY_FALLBACKS:
            archive.writestr(OLD_SECRETS, ",".join(settings.SECRET_KEY_FALLBACKS))
    made = datetime.now(UTC).isoformat(timespec="seconds")
    release = version("rmb-relay-platform")
    return Manifest(made, release, tuple(migrations), tuple(tables), secrets)


def _labels() -> list[str]:
    """Return the tables in an order in which each follows those that it refers to."""
    with_dependencies = [(app, None) for app in apps.get_app_configs()]
    ordered = serializers.sort_dependencies(with_dependencies, allow_cycles=True)
    labels = [each._meta.label_lower for each in ordered if each._meta.managed]
    return [label for label in labels if label not in LEFT_OUT]


def _rows(label: str) -> Iterator[str]:
    """Yield the rows of a table as lines of JSON."""
    model = apps.get_model(label)
    for row in model._base_manager.order_by(model._meta.pk.name).iterator(chunk_size=2000):
        yield serializers.serialize(
            "jsonl",
            [row],
            use_natural_foreign_keys=True,
            use_natural_primary_keys=True,
            cls=_Exact,
            ensure_ascii=True,  # some characters end a line for other readers
        ).rstrip("\n")


def _digest(label: str) -> Table:
    digest = Digest()
    for line in _rows(label):
        digest.add(_canonical(line))
    return digest.table(label)


def _canonical(line: str) -> str:
    """Return a row in a form that can be compared across databases.

    PostgreSQL orders the keys of JSON values itself, and writes 1e16 as 10000000000000000.
    """

    def number(text: str) -> float:
        found = float(text)
        return int(found) if found.is_integer() else found

    return json.dumps(json.loads(line, parse_float=number), sort_keys=True)


def _load(archive: zipfile.ZipFile, manifest: Manifest, say: Progress) -> None:
    """Insert all rows and compare them with what the database then holds, or change nothing.

    Handlers of model signals get `raw=True` and then write nothing: what they would write is in the
    backup as well.
    """
    with transaction.atomic():
        loaded = []
        for table in manifest.tables:
            say(f"{table.label}: {table.rows:,} rows")
            loaded.append(_fill(archive, table.label))
        _reset_sequences(manifest.tables)
        for wanted in loaded:
            if (found := _digest(wanted.label)) != wanted:
                raise BackupError(
                    f"table {wanted.label} is not what the backup holds ({found.rows:,} rows, "
                    f"{wanted.rows:,} in the backup): nothing is restored"
                )


def _fill(archive: zipfile.ZipFile, label: str) -> Table:
    """Insert the rows of a table; return what it has to hold afterwards."""
    digest = Digest()
    model = apps.get_model(label)
    for line in lines(archive, label):
        digest.add(_canonical(line))
        for found in serializers.deserialize("jsonl", line, handle_forward_references=False):
            if not isinstance(found.object, model):
                raise BackupError(f"table {label} holds a row of another table")
            if found.object.pk is None or label in MADE_BY_MIGRATIONS:
                found.save()  # identified by name, such as a group: it exists, or gets a new id
            else:
                found.save(using=None, save_m2m=True, force_insert=True)
    return digest.table(label)


def _check_target(manifest: Manifest) -> None:
    missing = set(manifest.migrations) - set(_applied())
    if missing:
        app, name = min(missing)
        raise BackupError(
            f"the backup is of release {manifest.release}, and this database lacks its migration "
            f"{app}.{name}: run manage.py migrate, or use that release or a newer one"
        )
    known = set(_labels())
    for table in manifest.tables:
        if table.label not in known:
            raise BackupError(f"this release has no table {table.label}")
        if table.label in MADE_BY_MIGRATIONS:
            continue
        if apps.get_model(table.label)._base_manager.exists():
            raise BackupError(
                f"the database is not empty (table {table.label}): restore into a new one, in a "
                "new data folder (RMB_DATA__DIR) or with another RMB_DATABASE__URL, after "
                "manage.py migrate"
            )


def _applied() -> list[tuple[str, str]]:
    return sorted(MigrationRecorder(connection).applied_migrations())


@contextlib.contextmanager
def _one_moment() -> Iterator[None]:
    """Make all reads see the database as it is now, without blocking writers."""
    if connection.vendor == "postgresql":
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            yield
        return
    # A transaction of Django's would take the write lock at once (see `rmbsite.database`).
    with connection.cursor() as cursor:
        nested = connection.in_atomic_block
        if not nested:
            cursor.execute("BEGIN DEFERRED")
        try:
            yield
        finally:
            if not nested:
                cursor.execute("ROLLBACK")


def _reset_sequences(tables: Iterable[Table]) -> None:
    found: list[type[models.Model]] = [apps.get_model(table.label) for table in tables]
    with connection.cursor() as cursor:
        for statement in connection.ops.sequence_reset_sql(no_style(), found):
            cursor.execute(statement)

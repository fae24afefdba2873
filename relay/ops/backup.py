"""Backups: what operators decided and know, in one file that any database can take back.

A backup is a zip file of

    manifest.json          what is in it: release, migrations, rows and digest of each table
    database/<table>.jsonl one row a line, as Django's serializer writes it
    settings/rmb.toml      the configuration file, where there is one; its secrets are blanked out
                           unless they are asked for
    settings/values.json   every setting that is no secret
    secrets/secret_key     only when asked for: signs cookies and the audit log

The tables are read at one moment, so they fit each other. The digest of a table does not depend on
the order of its rows: a restore computes it again from what the database then holds, and is undone
unless it is the same. Mail is not in it: it lives in Redis, for an hour at most, and has Redis' own
persistence.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import json
import os
import tomllib
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
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
from relay.access.errors import ServiceError
from relay.audit import services as audit

FORMAT: Final = 1
MANIFEST: Final = "manifest.json"
SECRET: Final = "secrets/secret_key"
CONFIG_FILE: Final = ("RMB_CONFIG", "rmb.toml")
"""The variable that names the configuration file, and its name without."""

MAX_MANIFEST_BYTES: Final = 4 * 1024 * 1024
MAX_LINE_BYTES: Final = 4 * 1024 * 1024
"""A row is some hundred bytes; a file that says otherwise is none of ours."""

LEFT_OUT: Final = frozenset(
    {
        *("contenttypes.contenttype", "auth.permission", "sessions.session"),
        "relay_alarms.evaluation",
        *("relay_access.failedtries", "relay_access.cacheentry"),
    }
)
"""Made by migrations, or worth nothing elsewhere."""

MADE_BY_MIGRATIONS: Final = frozenset({"auth.group"})
"""There is something in them from the beginning."""

HISTORY: Final = frozenset({"relay_sessions.session", "relay_history.point"})

Progress = Callable[[str], None]


class BackupError(ServiceError):
    """It cannot be made, read or restored."""


@dataclass(frozen=True, slots=True)
class Table:
    """One table of a backup: rows, and a digest that does not depend on their order."""

    label: str
    rows: int
    digest: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a backup says of itself."""

    made: str
    release: str
    migrations: tuple[tuple[str, str], ...]
    tables: tuple[Table, ...]
    secrets: bool

    def text(self) -> str:
        """As it stands in the file."""
        return json.dumps(
            {
                "format": FORMAT,
                "made": self.made,
                "release": self.release,
                "secrets": self.secrets,
                "tables": {each.label: [each.rows, each.digest] for each in self.tables},
                "migrations": self.migrations,
            },
            indent=1,
        )


class _Digest:
    """The sum of the hashes of all lines."""

    def __init__(self) -> None:
        self.rows = 0
        self._sum = 0

    def add(self, line: str) -> None:
        self.rows += 1
        self._sum += int.from_bytes(hashlib.sha256(line.encode()).digest(), "big")

    def table(self, label: str) -> Table:
        return Table(label, self.rows, f"{self._sum % 2**256:064x}")


class _Exact(DjangoJSONEncoder):
    """Keeps microseconds, which Django's cuts: the audit log is hashed with them."""

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
    """Write a backup that only its owner can read; a file of that name is not replaced.

    Args:
        path: of the file.
        actor: who wants it.
        history: whether the rows of ended sessions are in it.
        secrets: whether the site's secret key is.
        say: told of each table.

    Raises:
        BackupError: it cannot be written, or the database cannot be read.
    """
    actor.require(matrix.permission_of("backup.make"))
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    if path.exists():
        raise BackupError(f"{path} exists already: choose another name")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with (
            os.fdopen(descriptor, "wb") as file,
            zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive,
        ):
            manifest = _write(archive, history=history, secrets=secrets, say=say)
            archive.writestr(MANIFEST, manifest.text())
        os.link(draft, path)  # whole or not at all, and never over another
    except FileExistsError:
        raise BackupError(f"{path} exists already: choose another name") from None
    except OSError as error:
        raise BackupError(f"cannot write {path}: {error.strerror or error}") from None
    except DatabaseError as error:
        raise BackupError(f"database: {_line(error)}") from None
    finally:
        draft.unlink(missing_ok=True)
    _note(actor, "backup.make", path, manifest)
    return manifest


def verify(path: Path) -> Manifest:
    """Read a backup from end to end and compare it with what it says of itself.

    Raises:
        BackupError: it is damaged, or none.
    """
    with _opened(path) as archive:
        manifest = _manifest(archive)
        for wanted in manifest.tables:
            digest = _Digest()
            for line in _lines(archive, wanted.label):
                digest.add(line)
            if digest.table(wanted.label) != wanted:
                raise BackupError(f"{path}: table {wanted.label} is damaged")
    return manifest


def restore(path: Path, *, actor: Actor, say: Progress = lambda text: None) -> Manifest:
    """Put a backup into an empty database, all of it or nothing.

    Args:
        path: of the file.
        actor: who wants it.
        say: told of each table.

    Raises:
        BackupError: it is damaged or of a newer release, the database is not empty or cannot take
            it, or what it took is not what was in the file.
    """
    actor.require(matrix.permission_of("backup.restore"))
    manifest = verify(path)
    try:
        _check_target(manifest)
        with _opened(path) as archive, transaction.atomic():
            for table in manifest.tables:
                say(f"{table.label}: {table.rows:,} rows")
                _fill(archive, table.label)
            _reset_sequences(manifest.tables)
            for wanted in manifest.tables:
                if _digest(wanted.label) != wanted:
                    raise BackupError(f"table {wanted.label} is not what the backup holds: undone")
    except DeserializationError as error:
        raise BackupError(f"{path}: {_line(error)}") from None
    except DatabaseError as error:
        raise BackupError(f"database: {_line(error)}") from None
    _note(actor, "backup.restore", path, manifest)
    return manifest


def secret_key_of(path: Path) -> str | None:
    """The secret key in a backup; None where it has none.

    Raises:
        BackupError: it is damaged, or none.
    """
    with _opened(path) as archive:
        if SECRET not in archive.namelist():
            return None
        return archive.read(SECRET).decode()


def _note(actor: Actor, action: str, path: Path, manifest: Manifest) -> None:
    """Write it down when it is done: a lock held meanwhile would keep all others waiting."""
    with audit.change(actor, action, target=path.name) as change:
        change.after = {
            "made": manifest.made,
            "rows": sum(table.rows for table in manifest.tables),
            "secrets": manifest.secrets,
        }


def _write(archive: zipfile.ZipFile, *, history: bool, secrets: bool, say: Progress) -> Manifest:
    tables = []
    with _one_moment():
        migrations = _applied()
        for label in _labels():
            if label in HISTORY and not history:
                continue
            digest = _Digest()
            with archive.open(f"database/{label}.jsonl", "w", force_zip64=True) as file:
                for line in _rows(label):
                    digest.add(line)
                    file.write(f"{line}\n".encode())
            tables.append(digest.table(label))
            say(f"{label}: {digest.rows:,} rows")
    archive.writestr("settings/values.json", json.dumps(_settings(), indent=1))
    file_path = Path(os.environ.get(*CONFIG_FILE))
    if file_path.is_file():
        text = file_path.read_text()
        shown = text if secrets else _without_secrets(text)
        if shown is not None:
            archive.writestr("settings/rmb.toml", shown)
    if secrets:
        archive.writestr(SECRET, settings.SECRET_KEY)
    made = datetime.now(UTC).isoformat(timespec="seconds")
    release = version("rmb-relay-platform")
    return Manifest(made, release, tuple(migrations), tuple(tables), secrets)


def _labels() -> list[str]:
    """Tables in an order in which each finds those it refers to."""
    with_dependencies = [(app, None) for app in apps.get_app_configs()]
    ordered = serializers.sort_dependencies(with_dependencies, allow_cycles=True)
    labels = [each._meta.label_lower for each in ordered if each._meta.managed]
    return [label for label in labels if label not in LEFT_OUT]


def _rows(label: str) -> Iterator[str]:
    """The rows of a table as lines of JSON."""
    model = apps.get_model(label)
    for row in model._base_manager.order_by(model._meta.pk.name).iterator(chunk_size=2000):
        yield serializers.serialize(
            "jsonl",
            [row],
            use_natural_foreign_keys=True,
            use_natural_primary_keys=True,
            cls=_Exact,
            ensure_ascii=True,  # there are characters that end a line elsewhere
        ).rstrip("\n")


def _digest(label: str) -> Table:
    digest = _Digest()
    for line in _rows(label):
        digest.add(line)
    return digest.table(label)


def _fill(archive: zipfile.ZipFile, label: str) -> None:
    model = apps.get_model(label)
    for line in _lines(archive, label):
        for found in serializers.deserialize("jsonl", line, handle_forward_references=False):
            if not isinstance(found.object, model):
                raise BackupError(f"table {label} holds a row of another table")
            if found.object.pk is None or label in MADE_BY_MIGRATIONS:
                found.save()  # known by its name, such as a group: it is there, or gets a number
            else:
                found.save(using=None, save_m2m=True, force_insert=True)


def _check_target(manifest: Manifest) -> None:
    missing = set(manifest.migrations) - set(_applied())
    if missing:
        app, name = min(missing)
        raise BackupError(
            f"the backup is of release {manifest.release}, and this database lacks its migration "
            f"{app}.{name}: run manage.py migrate, or use that release or a newer one"
        )
    for table in manifest.tables:
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
    """All reads see the database as it is now, and hold no writer up."""
    if connection.vendor == "postgresql":
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            yield
        return
    # Django's own would take the write lock at once (see `rmbsite.database`).
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


def _settings() -> dict[str, Any]:
    """The settings in force that are no secrets, by their keys."""
    return {
        f"{section.name}.{each.name}": getattr(getattr(settings.RMB, section.name), each.name)
        for section in dataclasses.fields(settings.RMB)
        for each in dataclasses.fields(getattr(settings.RMB, section.name))
        if not each.metadata["secret"]
    }


def _without_secrets(text: str) -> str | None:
    """A configuration file that may be shown; None where a secret is written in another way than
    it reads, or nobody can tell."""
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return None
    for each in settings.RMB_OPTIONS:
        value = found.get(each.section, {}).get(each.name)
        if each.secret and value:
            if str(value) not in text:
                return None
            text = text.replace(str(value), "***")
    return text


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except (OSError, zipfile.BadZipFile, EOFError, NotImplementedError) as error:
        raise BackupError(f"{path} cannot be read as a backup: {_line(error)}") from None


def _manifest(archive: zipfile.ZipFile) -> Manifest:
    try:
        info = archive.getinfo(MANIFEST)
        if info.file_size > MAX_MANIFEST_BYTES:
            raise BackupError(f"{MANIFEST} has more than {MAX_MANIFEST_BYTES} bytes")
        document = json.loads(archive.read(info))
        if document["format"] != FORMAT:
            raise BackupError(
                f"the backup has format {document['format']}, this release reads {FORMAT}"
            )
        tables = tuple(
            Table(str(label), int(rows), str(digest))
            for label, (rows, digest) in document["tables"].items()
        )
        return Manifest(
            made=str(document["made"]),
            release=str(document["release"]),
            migrations=tuple((str(app), str(name)) for app, name in document["migrations"]),
            tables=tables,
            secrets=bool(document["secrets"]),
        )
    except KeyError as error:
        raise BackupError(f"it is no backup of a relay: there is no {error}") from None
    except (ValueError, TypeError, AttributeError) as error:
        raise BackupError(f"{MANIFEST} is damaged: {error}") from None


def _lines(archive: zipfile.ZipFile, label: str) -> Iterator[str]:
    try:
        member = archive.open(f"database/{label}.jsonl")
    except KeyError:
        raise BackupError(f"table {label} is missing in the file") from None
    try:
        with member, io.TextIOWrapper(member, encoding="utf-8", newline="\n") as file:
            while line := file.readline(MAX_LINE_BYTES):
                if not line.endswith("\n"):
                    raise BackupError(f"table {label}: a row is cut or too long")
                yield line[:-1]
    except (UnicodeDecodeError, zipfile.BadZipFile) as error:
        raise BackupError(f"table {label} is damaged: {_line(error)}") from None


def _line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]

"""The file of a backup: its contents, read member by member, and whether it is intact.

Every problem with a file raises `BackupError`: it may come from anywhere, with any bytes flipped.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import struct
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from relay.access.errors import ServiceError

FORMAT: Final = 1
MANIFEST: Final = "manifest.json"
SECRET: Final = "secrets/secret_key"
OLD_SECRETS: Final = "secrets/secret_key_fallbacks"

MAX_MANIFEST_BYTES: Final = 4 * 1024 * 1024
MAX_SECRET_BYTES: Final = 16 * 1024
MAX_LINE_BYTES: Final = 4 * 1024 * 1024
"""Maximum size of a row. Rows have some hundred bytes; a file with longer ones is not a backup."""

PACKED: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""Compression methods of members."""

_DAMAGE: Final = (
    *(OSError, zipfile.BadZipFile, zlib.error, struct.error),
    *(EOFError, LookupError, OverflowError, RuntimeError, ValueError),
)
"""Exceptions that flipped bytes can cause when a zip file is read."""


class BackupError(ServiceError):
    """A backup cannot be made, read or restored."""


@dataclass(frozen=True, slots=True)
class Table:
    """One table of a backup: number of rows, and a digest that does not depend on their order."""

    label: str
    rows: int
    digest: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a backup states about itself."""

    made: str
    release: str
    migrations: tuple[tuple[str, str], ...]
    tables: tuple[Table, ...]
    secrets: bool

    def text(self) -> str:
        """Return the manifest in the form that the file has."""
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


class Digest:
    """Digest of a table: the sum of the hashes of all lines."""

    def __init__(self) -> None:
        self.rows = 0
        self._sum = 0

    def add(self, line: str) -> None:
        self.rows += 1
        self._sum += int.from_bytes(hashlib.sha256(line.encode()).digest(), "big")

    def table(self, label: str) -> Table:
        return Table(label, self.rows, f"{self._sum % 2**256:064x}")


def verify(path: Path) -> Manifest:
    """Read a backup from end to end and compare it with its manifest.

    Raises:
        BackupError: The file is damaged, or is not a backup.
    """
    with opened(path) as archive:
        manifest = manifest_of(archive)
        with _reading(str(path)):
            damaged = archive.testzip()  # the other members have zip's checksum
        if damaged is not None:
            raise BackupError(f"{damaged} is damaged")
        if manifest.secrets and SECRET not in archive.namelist():
            raise BackupError(f"{SECRET} is missing in the file")
        for wanted in manifest.tables:
            digest = Digest()
            for line in lines(archive, wanted.label):
                digest.add(line)
            if digest.table(wanted.label) != wanted:
                raise BackupError(f"{path}: table {wanted.label} is damaged")
    return manifest


@contextlib.contextmanager
def opened(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open the file, to read members of it.

    Raises:
        BackupError: It is not a zip file, or its members use a compression method that backups do
            not use.
    """
    with contextlib.ExitStack() as stack:
        with _reading(f"{path} cannot be read as a backup", "{where}: {why}"):
            archive = stack.enter_context(zipfile.ZipFile(path))
        for info in archive.infolist():
            if info.compress_type not in PACKED:
                raise BackupError(f"{info.filename} is packed in an unknown way, or damaged")
        yield archive


def manifest_of(archive: zipfile.ZipFile) -> Manifest:
    """Return the manifest of a backup.

    Raises:
        BackupError: The file is damaged, of another format, or not a backup.
    """
    document = _text(archive, MANIFEST, MAX_MANIFEST_BYTES)
    if document is None:
        raise BackupError(f"not a backup of a relay: it has no {MANIFEST}")
    try:
        return _parse(json.loads(document))
    except KeyError as error:
        raise BackupError(f"not a backup of a relay: it has no {error}") from None
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise BackupError(f"{MANIFEST} is damaged: {error}") from None


def keys_of(archive: zipfile.ZipFile) -> tuple[str | None, list[str]]:
    """Return the secret key in a backup, None if it has none, and the former ones.

    Raises:
        BackupError: They are damaged.
    """
    before = _text(archive, OLD_SECRETS, MAX_SECRET_BYTES) or ""
    return _text(archive, SECRET, MAX_SECRET_BYTES), [each for each in before.split(",") if each]


def lines(archive: zipfile.ZipFile, label: str) -> Iterator[str]:
    """Yield the rows of a table.

    Raises:
        BackupError: The table is missing or damaged.
    """
    where = f"table {label}"
    if (name := f"database/{label}.jsonl") not in archive.namelist():
        raise BackupError(f"{where} is missing in the file")
    with (
        _reading(where),
        archive.open(name) as member,
        io.TextIOWrapper(member, encoding="utf-8", newline="\n") as file,
    ):
        while line := file.readline(MAX_LINE_BYTES):
            if not line.endswith("\n"):
                raise BackupError(f"{where}: a row is cut or too long")
            yield line[:-1]


def line_of(error: BaseException) -> str:
    """Return the first line of an error's message."""
    return str(error).strip().partition("\n")[0]


def _text(archive: zipfile.ZipFile, name: str, limit: int) -> str | None:
    """Return the whole text of a member; None if it does not exist."""
    if name not in archive.namelist():
        return None
    with _reading(name):
        info = archive.getinfo(name)
        if info.file_size > limit:
            raise BackupError(f"{name} has more than {limit} bytes")
        return archive.read(info).decode()


def _parse(document: Any) -> Manifest:
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


@contextlib.contextmanager
def _reading(where: str, form: str = "{where} is damaged: {why}") -> Iterator[None]:
    """Raise what `zipfile` raises about bytes that are not those of a zip file as `BackupError`."""
    try:
        yield
    except _DAMAGE as error:
        why = line_of(error) or type(error).__name__
        raise BackupError(form.format(where=where, why=why)) from None

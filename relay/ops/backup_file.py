"""The file of a backup: what is in it, read member by member, and whether it is whole.

Whatever is wrong with a file is a `BackupError`: it may come from anywhere, with any bytes flipped.
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
"""A row is some hundred bytes; a file that says otherwise is none of ours."""

PACKED: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""How members are packed."""

_DAMAGE: Final = (
    *(OSError, zipfile.BadZipFile, zlib.error, struct.error),
    *(EOFError, LookupError, OverflowError, RuntimeError, ValueError),
)
"""What flipped bytes make of reading a zip file."""


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


class Digest:
    """The sum of the hashes of all lines."""

    def __init__(self) -> None:
        self.rows = 0
        self._sum = 0

    def add(self, line: str) -> None:
        self.rows += 1
        self._sum += int.from_bytes(hashlib.sha256(line.encode()).digest(), "big")

    def table(self, label: str) -> Table:
        return Table(label, self.rows, f"{self._sum % 2**256:064x}")


def verify(path: Path) -> Manifest:
    """Read a backup from end to end and compare it with what it says of itself.

    Raises:
        BackupError: it is damaged, or none.
    """
    with opened(path) as archive:
        manifest = manifest_of(archive)
        with _reading(str(path)):
            damaged = archive.testzip()  # what has no digest in the manifest has one of zip's
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
    """The file, to read members of.

    Raises:
        BackupError: it is no zip file, or one with members that are packed as none of ours is.
    """
    with contextlib.ExitStack() as stack:
        with _reading(f"{path} cannot be read as a backup", "{where}: {why}"):
            archive = stack.enter_context(zipfile.ZipFile(path))
        for info in archive.infolist():
            if info.compress_type not in PACKED:
                raise BackupError(f"{info.filename} is packed in an unknown way, or damaged")
        yield archive


def manifest_of(archive: zipfile.ZipFile) -> Manifest:
    """What a backup says of itself.

    Raises:
        BackupError: it is damaged, of another format, or no backup.
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
    """The secret key in a backup, None where it has none, and those of before.

    Raises:
        BackupError: they are damaged.
    """
    before = _text(archive, OLD_SECRETS, MAX_SECRET_BYTES) or ""
    return _text(archive, SECRET, MAX_SECRET_BYTES), [each for each in before.split(",") if each]


def lines(archive: zipfile.ZipFile, label: str) -> Iterator[str]:
    """The rows of a table.

    Raises:
        BackupError: it is damaged.
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
    """What an error says, in one line."""
    return str(error).strip().partition("\n")[0]


def _text(archive: zipfile.ZipFile, name: str, limit: int) -> str | None:
    """A member that is read at once; None where there is none."""
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
    """What `zipfile` raises about bytes that are none of a zip file, as an error of the backup."""
    try:
        yield
    except _DAMAGE as error:
        why = line_of(error) or type(error).__name__
        raise BackupError(form.format(where=where, why=why)) from None

"""The file of `rmb-peer --many`: the twins of one process, and the settings they share.

    relays = ["wss://relay.example.com"]    # of every twin that names none itself
    twins = "http://127.0.0.1:8081"         # or: substrate = [...]; the default is the chain
    redis = "redis://localhost:6379"

    [[twin]]
    name = "alice"
    secret_file = "secrets/alice"
    database = 1

    [[twin]]
    secret_file = "secrets/bob"
    database = 2

Programs find the lists of their twin under the usual names in the twin's own Redis database, so no
two twins may have the same one. Names of files are relative to the file's folder. A mistake in the
file invalidates all of it; a secret that cannot be read affects that twin alone.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from peer import arguments
from peer.arguments import UsageError
from peer.identity import Identity
from peer.modules.files_options import upload_folder
from proto.rmb.bounds import MAX_CONNECTION_BYTES
from redispipe.address import RedisAddress, RedisAddressError

DEFAULT_REDIS: Final = "redis://localhost:6379"
MAX_FILE_BYTES: Final = 16 * 1024 * 1024
MAX_TWINS: Final = 20_000
"""Maximum number of twins. Each takes three connections to Redis and about 100 KiB."""
MAX_DATABASE: Final = 999_999_999

_OPTION: Final = re.compile(r"--[a-z-]+:? ")
_KINDS: Final = {str: "a text", bool: "true or false", int: "a number", list: "a list of texts"}
_COMMON: Final[dict[str, type]] = {
    "key_type": str, "relays": list, "redis": str, "modules": list,
}  # fmt: skip
_TOP: Final[dict[str, type]] = {**_COMMON, "twins": str, "substrate": list, "update": bool}
_TWIN: Final[dict[str, type]] = {
    **_COMMON, "name": str, "secret": str, "secret_file": str, "sid": str, "database": int,
    "uploads": str,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TwinEntry:
    """One twin of the file; two entries are equal if the same gateway serves both.

    Attributes:
        name: name in the log.
        label: position in the file, for error messages.
        identity: the keys; None if they cannot be used.
        problem: why the keys cannot be used.
        account: public signing key.
        sid: id of the session; None: the session addressed by the twin's id alone.
        relays: URLs of the relays.
        redis_url: URL of the Redis database with the twin's lists.
        uploads: folder for files from other twins.
        modules: modules that answer commands in this process.
    """

    name: str = field(compare=False)
    label: str = field(compare=False)
    identity: Identity | None = field(compare=False, repr=False)
    problem: str
    account: bytes
    sid: str | None
    relays: tuple[str, ...]
    redis_url: str
    uploads: Path | None
    modules: tuple[str, ...]


class ManyFile(NamedTuple):
    """Contents of the file.

    Attributes:
        path: path of the file.
        twins: file or URL of all twins; None: the chain.
        substrate: URLs of chain nodes.
        update: whether twins on the chain may be changed to match the file.
        entries: the twins.
    """

    path: Path
    twins: str | None
    substrate: tuple[str, ...]
    update: bool
    entries: tuple[TwinEntry, ...]


def read(path: Path) -> ManyFile:
    """Read a file.

    Raises:
        UsageError: the file cannot be read, or something in it is invalid. The text names the file,
            the twin and the field.
    """
    try:
        table = _parsed(path)
        _check_fields(table, _TOP, also=("twin",))
        if "twins" in table and "substrate" in table:
            raise UsageError("twins, substrate: use one of them")
        if table.get("twins") == "":
            raise UsageError("twins: is empty; use a file or a URL")
        with_relays = table.get("relays", list(arguments.DEFAULT_RELAYS))
        substrate = table.get("substrate", list(arguments.DEFAULT_SUBSTRATE))
        found = ManyFile(
            path,
            _twins(path.parent, table.get("twins")),
            _renamed("substrate", lambda: arguments.substrate_urls(substrate)),
            table.get("update", True) and "twins" not in table,
            tuple(_entries(path.parent, {**table, "relays": with_relays})),
        )
        _check_distinct(found.entries)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
    return found


def _parsed(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror}") from None
    if len(data) > MAX_FILE_BYTES:
        raise UsageError(f"is larger than {MAX_FILE_BYTES} bytes")
    try:
        return tomllib.loads(data.decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"is not TOML: {error}") from None


def _entries(folder: Path, common: Mapping[str, Any]) -> Iterator[TwinEntry]:
    tables = common.get("twin", [])
    if not isinstance(tables, list) or not all(isinstance(each, dict) for each in tables):
        raise UsageError("twin: must be tables; begin each with [[twin]]")
    if not 1 <= len(tables) <= MAX_TWINS:
        raise UsageError(f"[[twin]]: must be 1 to {MAX_TWINS} twins, not {len(tables)}")
    defaults = {name: common[name] for name in _COMMON if name in common}
    for number, table in enumerate(tables, 1):
        name = table.get("name")
        named = isinstance(name, str) and name and name.isprintable()
        label = f"[[twin]] {number} ({name:.60})" if named else f"[[twin]] {number}"
        try:
            _check_fields(table, _TWIN)
            if name is not None and not named:
                raise UsageError("name: must be a text that can be printed")
            shown = name if named else str(number)
            yield _entry(folder, shown, label, {**defaults, **table})
        except UsageError as error:
            raise UsageError(f"{label}: {error}") from None


def _entry(folder: Path, name: str, label: str, table: Mapping[str, Any]) -> TwinEntry:
    relays, uploads, sid = table["relays"], table.get("uploads"), table.get("sid")
    if sid is not None and not 1 <= len(sid.encode()) <= MAX_CONNECTION_BYTES:
        raise UsageError(f"sid: must have 1 to {MAX_CONNECTION_BYTES} bytes")
    if uploads is not None:
        uploads = _renamed("uploads", lambda: upload_folder(_path(folder, uploads)))
    identity, problem = _identity(folder, table)
    return TwinEntry(
        name,
        label,
        identity,
        problem,
        b"" if identity is None else identity.account,
        sid,
        _renamed("relays", lambda: arguments.relay_urls(relays, domains=True)),
        _redis(table),
        uploads,
        tuple(table.get("modules", ())),
    )


def _identity(folder: Path, table: Mapping[str, Any]) -> tuple[Identity | None, str]:
    """Return the keys of a twin, or the reason why they cannot be used."""
    text, file = table.get("secret"), table.get("secret_file")
    if (text is None) == (file is None):
        raise UsageError("secret_file: is missing" if text is None else "secret, secret_file: "
                         "use one of them")  # fmt: skip
    key_type = _renamed("key_type", lambda: arguments.key_type(table.get("key_type", "sr25519")))
    name = "secret" if file is None else "secret_file"
    try:
        secret = arguments.secret(text, None if file is None else _path(folder, file))
        return arguments.identity(secret, key_type), ""
    except UsageError as error:
        return None, f"{name}: {error}"


def _redis(table: Mapping[str, Any]) -> str:
    try:
        address = RedisAddress.parse(table.get("redis", DEFAULT_REDIS))
    except RedisAddressError as error:
        raise UsageError(f"redis: {error}") from None
    database = table.get("database")
    if database is None:
        return address.url
    if not 0 <= database <= MAX_DATABASE:
        raise UsageError(f"database: {database} must be from 0 to {MAX_DATABASE}")
    return address._replace(database=database).url


def _check_fields(
    table: Mapping[str, Any], fields: Mapping[str, type], also: tuple[str, ...] = ()
) -> None:
    for name, value in table.items():
        if name in also:
            continue
        kind = fields.get(name)
        if kind is None:
            nearest = difflib.get_close_matches(name, [*fields, *also], n=1, cutoff=0.6)
            hint = f"did you mean {nearest[0]}?" if nearest else f"use {', '.join(fields)}"
            raise UsageError(f"unknown field {name!r:.60}; {hint}")
        is_texts = isinstance(value, list) and all(isinstance(each, str) for each in value)
        if type(value) is not kind or (kind is list and not is_texts):
            # The value is not repeated: it may be a secret under a wrong name.
            raise UsageError(f"{name}: must be {_KINDS[kind]}")


def _check_distinct(entries: tuple[TwinEntry, ...]) -> None:
    seen: dict[tuple[str, object], TwinEntry] = {}
    for entry in entries:
        address = RedisAddress.parse(entry.redis_url)
        place = (address.host, address.port, address.path, address.database)
        uses: list[tuple[str, object, str]] = [
            ("name", entry.name, "has the same name as"),
            ("redis", place, f"{address} is the Redis of"),
        ]
        if entry.uploads is not None:
            uses.append(("uploads", entry.uploads, f"{entry.uploads} is the folder of"))
        if entry.identity is not None:
            uses.append(("secret", (entry.account, entry.sid), "is the same twin as"))
        for what, value, text in uses:
            other = seen.setdefault((what, value), entry)
            if other is not entry:
                remedy = "; give each twin a database of its own" if what == "redis" else ""
                raise UsageError(f"{entry.label}: {what}: {text} {other.label} too{remedy}")


def _twins(folder: Path, spec: str | None) -> str | None:
    return spec if spec is None or "://" in spec else _path(folder, spec)


def _path(folder: Path, text: str) -> str:
    return str(folder / arguments.at_home(text))


def _renamed(name: str, check: Any) -> Any:
    """Return the result of checking an option; its error names the field instead of the option."""
    try:
        return check()
    except (UsageError, ValueError) as error:
        text = _OPTION.sub("", str(error))
        raise UsageError(f"{name}: {text}") from None

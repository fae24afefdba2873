"""Segments: files that recorders append to, until a compactor converts them to Parquet.

A file `<relay>-<worker>-<start in us>.seg` is a sequence of blocks with length and checksum:

    block    magic 4s, type u32, length u32, crc32 u32, until_us i64, then `length` bytes
    HEADER   JSON: version, record_bytes, relay, worker, started_us, kinds, reasons, pace (always
             first)
    NAMES    JSON: {"table": "sessions"|"remotes"|"keys", "first": code, "names": [...]}; such
             blocks continue a table, each before the first record that uses its names
    RECORDS  any number of records of `relay.analytics.records`
    MARK     empty: nothing happened, and the recorder was alive

All events recorded before `until_us` are in the file; those that a killed process lost are later.
The checksum covers the type, the length, `until_us` and the content.

While a file is written, its name ends in `.seg.open`, and its writer holds a lock on it, which the
kernel releases when the process ends: a file without the lock belongs to a dead process. `recover`
truncates such a file after its last good block, ends the sessions that are still open in it, closes
it, and reports the time of possible losses.
"""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import re
import zlib
from collections.abc import Callable, Iterator
from enum import IntEnum
from pathlib import Path
from struct import Struct
from typing import Any, Final, NamedTuple

from relay.analytics import lost_sessions
from relay.analytics.records import (
    FIRST_NAMES,
    KINDS,
    MAX_KEYS,
    MAX_NAME_BYTES,
    MAX_REMOTES,
    MAX_SESSIONS,
    REASONS,
    RECORD_BYTES,
)

VERSION: Final = 1
"""Version of the format; a file of a later version is refused with an error that names it."""

MAGIC: Final = b"RMBE"
BLOCK: Final = Struct("<4sIIIq")
"""magic, type, length, crc32, until_us"""

_SUMMED: Final = Struct("<IIq")

MAX_BLOCK_BYTES: Final = 8 << 20
"""Maximum length of a block; a larger length is invalid, so it cannot exhaust the memory."""

SUFFIX: Final = ".seg"
OPEN_SUFFIX: Final = ".seg.open"
UNREADABLE_SUFFIX: Final = ".unreadable"

TABLES: Final = {"sessions": MAX_SESSIONS, "remotes": MAX_REMOTES, "keys": MAX_KEYS}
"""Tables of names, with the maximum number of names of each."""

_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._]+")
REPLACED: Final = "_"
"""Replacement in file names for characters that are not allowed there."""


class Type(IntEnum):
    """Type of a block."""

    HEADER = 1
    NAMES = 2
    RECORDS = 3
    MARK = 4


class SegmentError(ValueError):
    """A file that cannot be read as a segment; the text names it, and says why."""


class Pace(NamedTuple):
    """Figures for what a recorder may lose when it is killed (`relay.analytics.losses`).

    Attributes:
        flush_us: time between two writes, in microseconds.
        at_most: maximum number of unwritten rows it can hold.
        before_records, before_us: rows of the segment before, and its length in microseconds.
    """

    flush_us: int
    at_most: int
    before_records: int = 0
    before_us: int = 0


class Write(NamedTuple):
    """One write of a recorder: time up to which the file is complete, and number of new rows."""

    until_us: int
    records: int


@dataclasses.dataclass(frozen=True, slots=True)
class Header:
    """Owner of a segment, and the meaning of its numbers.

    Attributes:
        relay: relay of all its rows.
        worker: process that wrote it, for gaps.
        started_us: time of its start, in microseconds since 1970.
        kinds, reasons: names at the index of their numbers.
        pace: figures of its recorder; None in segments of earlier versions.
    """

    relay: str
    worker: str
    started_us: int
    kinds: tuple[str, ...] = KINDS
    reasons: tuple[str, ...] = REASONS
    pace: Pace | None = None

    @property
    def name(self) -> str:
        """Name of the file, without its suffix."""
        return file_name(self.relay, self.worker, self.started_us)


def file_name(relay: str, worker: str, *more: object) -> str:
    """Return a name for a file of a process, with unsafe characters replaced."""
    safe = (_UNSAFE.sub(REPLACED, text) for text in (relay, worker))
    return "-".join((*safe, *map(str, more)))


def block(kind: Type, content: bytes | memoryview, until_us: int) -> list[bytes | memoryview]:
    """Return one block in two pieces, so that its content is not copied."""
    length = len(content)
    crc = zlib.crc32(content, zlib.crc32(_SUMMED.pack(kind, length, until_us)))
    return [BLOCK.pack(MAGIC, kind, length, crc, until_us), content]


def header_block(header: Header, until_us: int | None = None) -> bytes:
    """Return the first block of a file.

    Args:
        header: content of the block.
        until_us: time up to which all events are in earlier files; None: the start of this one.
    """
    content = json.dumps(
        {
            "version": VERSION,
            "record_bytes": RECORD_BYTES,
            "relay": header.relay,
            "worker": header.worker,
            "started_us": header.started_us,
            "kinds": header.kinds,
            "reasons": header.reasons,
            "pace": header.pace and header.pace._asdict(),
        }
    ).encode()
    return b"".join(
        block(Type.HEADER, content, header.started_us if until_us is None else until_us)
    )


def names_block(table: str, first: int, names: list[str], until_us: int) -> bytes:
    """Return a block with names for later records; their numbers begin with `first`."""
    content = json.dumps({"table": table, "first": first, "names": names}).encode()
    return b"".join(block(Type.NAMES, content, until_us))


class SegmentReader:
    """Reader of one segment, which is in memory or mapped.

    Attributes:
        header: header of the segment.
        names: tables of names; complete for the records that were yielded so far.
        until_us: time up to which the file is complete, as far as it was read.
        writes: writes of the recorder; the first has no rows.
        good_bytes: end of the last good block.
        torn_bytes: bytes behind it, known after all blocks were read; 0 if the file is complete.
    """

    def __init__(self, data: bytes | memoryview, path: str | Path) -> None:
        """Read the header.

        Raises:
            SegmentError: the data do not begin like a segment, or are of a later version.
        """
        self._data = memoryview(data)
        self._path = path
        self.names: dict[str, list[str]] = {table: list(FIRST_NAMES) for table in TABLES}
        self.until_us = 0
        self.writes: list[Write] = []
        self.good_bytes = 0
        self.torn_bytes = 0
        first = self._next()
        if first is None or first[0] != Type.HEADER:
            raise SegmentError(f"{path}: does not begin with the header of a segment")
        self.header = self._header(first[1])

    def records(self) -> Iterator[memoryview]:
        """Yield the records of one block after another, up to the first torn block.

        Raises:
            SegmentError: a complete block has a content that this version does not know.
        """
        while (found := self._next()) is not None:
            kind, content = found
            if kind == Type.RECORDS:
                if len(content) % RECORD_BYTES:
                    raise SegmentError(f"{self._path}: a block does not consist of whole records")
                yield content
            elif kind == Type.NAMES:
                self._add(content)
            elif kind != Type.MARK:
                raise SegmentError(f"{self._path}: has a block of an unknown type, {kind}")
        self.torn_bytes = len(self._data) - self.good_bytes

    def _next(self) -> tuple[int, memoryview] | None:
        """Return the next good block."""
        found = _block_at(self._data, self.good_bytes)
        if found is None:
            return None
        kind, content, until_us = found
        self.good_bytes += BLOCK.size + len(content)
        records = len(content) // RECORD_BYTES if kind == Type.RECORDS else 0
        if until_us > self.until_us:
            self.writes.append(Write(until_us, records))
            self.until_us = until_us
        elif records and self.writes:
            self.writes[-1] = Write(self.until_us, self.writes[-1].records + records)
        return kind, content

    def _json(self, content: memoryview) -> dict[str, Any]:
        try:
            found = json.loads(bytes(content))
        except ValueError as error:
            raise SegmentError(f"{self._path}: a block is not JSON") from error
        if not isinstance(found, dict):
            raise SegmentError(f"{self._path}: a block is not a JSON object")
        return found

    def _header(self, content: memoryview) -> Header:
        found = self._json(content)
        version = found.get("version")
        if version != VERSION:
            raise SegmentError(
                f"{self._path}: is of version {version}, this release reads {VERSION}"
            )
        if found.get("record_bytes") != RECORD_BYTES:
            raise SegmentError(
                f"{self._path}: has records of {found.get('record_bytes')} bytes, "
                f"not of {RECORD_BYTES}"
            )
        try:
            return Header(
                relay=str(found["relay"]),
                worker=str(found["worker"]),
                started_us=int(found["started_us"]),
                kinds=tuple(map(str, found["kinds"])),
                reasons=tuple(map(str, found["reasons"])),
                pace=_pace(found.get("pace")),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise SegmentError(f"{self._path}: its header is incomplete ({error})") from error

    def _add(self, content: memoryview) -> None:
        found = self._json(content)
        table, names = found.get("table"), found.get("names")
        known = self.names.get(table) if isinstance(table, str) else None
        if known is None or not isinstance(names, list):
            raise SegmentError(f"{self._path}: has names of an unknown table, {table}")
        if found.get("first") != len(known) or len(known) + len(names) > TABLES[str(table)]:
            raise SegmentError(f"{self._path}: the {table} do not continue those before")
        known.extend(str(name)[:MAX_NAME_BYTES] for name in names)


def _pace(found: dict[str, Any] | None) -> Pace | None:
    return None if found is None else Pace(*(int(found[name]) for name in Pace._fields))


def owner(path: Path) -> tuple[str, str] | None:
    """Return relay and worker of a segment of any version; None if its header cannot be read."""
    try:
        with path.open("rb") as file:
            head = file.read(BLOCK.size + MAX_BLOCK_BYTES)
        first = _block_at(memoryview(head), 0)
        if first is None or first[0] != Type.HEADER:
            return None
        found = json.loads(bytes(first[1]))
        return str(found["relay"]), str(found["worker"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _block_at(data: memoryview, at: int) -> tuple[int, memoryview, int] | None:
    """Return type, content and `until_us` of the block at a position; None if it is not good."""
    start = at + BLOCK.size
    if start > len(data):
        return None
    magic, kind, length, crc, until_us = BLOCK.unpack_from(data, at)
    if magic != MAGIC or length > MAX_BLOCK_BYTES or start + length > len(data):
        return None
    content = data[start : start + length]
    if zlib.crc32(content, zlib.crc32(_SUMMED.pack(kind, length, until_us))) != crc:
        return None
    return kind, content, until_us


@dataclasses.dataclass(frozen=True, slots=True)
class Recovered:
    """What a dead recorder left.

    Attributes:
        path: the closed segment; None if the file is not a segment, and was put aside.
        header: header of the segment; None if it could not be read.
        until_us: time up to which the segment is complete.
        torn_bytes: number of bytes that were cut off.
        writes: writes of the recorder.
    """

    path: Path | None
    header: Header | None
    until_us: int
    torn_bytes: int
    writes: list[Write] = dataclasses.field(default_factory=list, compare=False)


def lock(file: int) -> bool:
    """Try to take the lock of an open file; return whether it succeeded.

    The lock lasts until the file is closed.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def sync_folder(folder: Path) -> None:
    """Sync a folder, so that its entries survive a loss of power."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def recover(path: Path, tell: Callable[[Recovered], None] | None = None) -> Recovered | None:
    """Close an open segment of a dead writer; None if the writer lives or it is closed already.

    After a crash, the function may be called again, with the same result.

    Args:
        path: path of the open segment.
        tell: called before the file is renamed, so that what it records survives a crash; after a
            crash, it may be called again.
    """
    try:
        opened = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        if not lock(opened) or not path.exists():
            return None
        data = path.read_bytes()
        try:
            reader = SegmentReader(data, path)
            header = reader.header
            sessions = lost_sessions.unended(reader.records(), header.kinds)
        except SegmentError:
            # A recorder leaves such a file only if the machine lost power: kept for inspection.
            found = Recovered(None, None, 0, len(data))
            if tell is not None:
                tell(found)
            path.rename(path.with_name(path.name + UNREADABLE_SUFFIX))
            sync_folder(path.parent)
            return found
        if reader.torn_bytes:
            os.ftruncate(opened, reader.good_bytes)
        os.fsync(opened)
        closed = path.with_name(path.name.removesuffix(OPEN_SUFFIX) + SUFFIX)
        found = Recovered(closed, header, reader.until_us, reader.torn_bytes, reader.writes)
        if tell is not None:
            tell(found)
        _end_sessions(opened, header, sessions, reader.until_us)
        path.rename(closed)
        sync_folder(path.parent)
        return found
    finally:
        os.close(opened)


def _end_sessions(
    file: int, header: Header, sessions: list[lost_sessions.Open], until_us: int
) -> None:
    """Append the ends of sessions to the segment of their dead worker."""
    os.lseek(file, 0, os.SEEK_END)
    for rows in lost_sessions.closing_rows(sessions, until_us, header.kinds, header.reasons):
        rest = memoryview(b"".join(block(Type.RECORDS, rows, until_us)))
        while rest:
            rest = rest[os.write(file, rest) :]
    if sessions:
        os.fsync(file)

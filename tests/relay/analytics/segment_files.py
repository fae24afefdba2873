"""Writes segments as a recorder does, and reads the lake back."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from pyarrow import parquet

from relay.analytics.lake import Lake
from relay.analytics.records import NO_LATENCY, REASON_CODE, RECORD, Kind
from relay.analytics.segments import (
    OPEN_SUFFIX,
    SUFFIX,
    Header,
    Type,
    block,
    header_block,
    lock,
    names_block,
)

HOUR_US = 3_600_000_000


def at(text: str) -> int:
    """Microseconds of a time in UTC, such as 2026-03-01T05:00."""
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * 1_000_000


def record(
    at_us: int,
    uid: int,
    *,
    size: int = 100,
    latency: int = NO_LATENCY,
    src: int = 1,
    dst: int = 2,
    session: int = 0,
    remote: int = 0,
    kind: int = Kind.ACCEPTED,
    reason: str = "none",
) -> bytes:
    """One event."""
    code = REASON_CODE[reason]
    return RECORD.pack(at_us, uid, size, latency, src, dst, session, remote, kind, code)


def events(start_us: int, uids: Iterable[int], step_us: int = 1_000) -> list[bytes]:
    """Events that follow each other."""
    return [record(start_us + n * step_us, uid) for n, uid in enumerate(uids)]


def content(
    header: Header, records: Sequence[bytes], *, names: bytes = b"", each: int = 3
) -> bytes:
    """A whole segment, a few records in a block."""
    parts = [header_block(header), names]
    for start in range(0, len(records), each):
        parts += block(Type.RECORDS, b"".join(records[start : start + each]), header.started_us + 1)
    return b"".join(parts)


def sessions(*names: str) -> bytes:
    """Names with the numbers from 2 on."""
    return names_block("sessions", 2, list(names), 0)


def keys(*names: str) -> bytes:
    """Names with the numbers from 2 on."""
    return names_block("keys", 2, list(names), 0)


def remotes(*names: str) -> bytes:
    """Names with the numbers from 2 on."""
    return names_block("remotes", 2, list(names), 0)


def put(lake: Lake, data: bytes, header: Header, suffix: str = SUFFIX) -> Path:
    """Lay a segment into the lake."""
    lake.segments.mkdir(parents=True, exist_ok=True)
    path = lake.segments / f"{header.name}{suffix}"
    path.write_bytes(data)
    return path


def put_open(lake: Lake, data: bytes, header: Header) -> tuple[Path, int]:
    """Lay a segment as one that is being written: closing the descriptor is the writer's death."""
    path = put(lake, data, header, OPEN_SUFFIX)
    descriptor = os.open(path, os.O_RDWR)
    assert lock(descriptor)
    return path, descriptor


def rows(lake: Lake) -> list[dict[str, Any]]:
    """All rows a reader of the lake gets."""
    files = lake.files(date.min, date.max)
    return [row for file in files for row in parquet.ParquetFile(file.path).read().to_pylist()]


def uids(lake: Lake) -> list[int]:
    """The uids of all rows, in order."""
    files = lake.files(date.min, date.max)
    found = [parquet.ParquetFile(file.path).read(["uid"])["uid"] for file in files]
    return sorted(uid for column in found for uid in column.to_pylist())

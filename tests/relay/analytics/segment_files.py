"""Helpers that write segments as a recorder does, and read the lake."""

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
    """Return the microseconds since 1970 of a time in UTC, such as 2026-03-01T05:00."""
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
    """Return one packed event."""
    code = REASON_CODE[reason]
    return RECORD.pack(at_us, uid, size, latency, src, dst, session, remote, kind, code)


def events(start_us: int, uids: Iterable[int], step_us: int = 1_000) -> list[bytes]:
    """Return packed events that follow each other in time."""
    return [record(start_us + n * step_us, uid) for n, uid in enumerate(uids)]


def content(
    header: Header, records: Sequence[bytes], *, names: bytes = b"", each: int = 3
) -> bytes:
    """Return a whole segment with a few records in each block."""
    parts = [header_block(header), names]
    for start in range(0, len(records), each):
        parts += block(Type.RECORDS, b"".join(records[start : start + each]), header.started_us + 1)
    return b"".join(parts)


def sessions(*names: str) -> bytes:
    """Return a block of session names that are numbered from 2 on."""
    return names_block("sessions", 2, list(names), 0)


def keys(*names: str) -> bytes:
    """Return a block of key names that are numbered from 2 on."""
    return names_block("keys", 2, list(names), 0)


def remotes(*names: str) -> bytes:
    """Return a block of remote names that are numbered from 2 on."""
    return names_block("remotes", 2, list(names), 0)


def put(lake: Lake, data: bytes, header: Header, suffix: str = SUFFIX) -> Path:
    """Write a segment into the lake."""
    lake.segments.mkdir(parents=True, exist_ok=True)
    path = lake.segments / f"{header.name}{suffix}"
    path.write_bytes(data)
    return path


def put_open(lake: Lake, data: bytes, header: Header) -> tuple[Path, int]:
    """Write a segment that is still open; closing the descriptor acts as its writer's end."""
    path = put(lake, data, header, OPEN_SUFFIX)
    descriptor = os.open(path, os.O_RDWR)
    assert lock(descriptor)
    return path, descriptor


def rows(lake: Lake) -> list[dict[str, Any]]:
    """Return all rows that a reader of the lake gets."""
    files = lake.files(date.min, date.max)
    return [row for file in files for row in parquet.ParquetFile(file.path).read().to_pylist()]


def uids(lake: Lake) -> list[int]:
    """Return the uids of all rows, in order."""
    files = lake.files(date.min, date.max)
    found = [parquet.ParquetFile(file.path).read(["uid"])["uid"] for file in files]
    return sorted(uid for column in found for uid in column.to_pylist())

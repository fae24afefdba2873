"""One closed segment becomes Parquet, a file for each hour its events lie in.

    segment -> records (numpy, not copied one by one) -> by hour -> Arrow -> Parquet -> segment gone

The file is named after the segment and the hour, so what is killed half-way and begun anew replaces
what it had written; the segment goes last, when all of them are on the disk. A segment whose end is
torn, or that cannot be read at all, is kept under another name and a gap tells of it.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from relay.analytics import backlog, gaps, segments
from relay.analytics.arrow_schema import EVENTS, ROW_GROUP
from relay.analytics.event_files import new_file
from relay.analytics.gaps import Gap, Why
from relay.analytics.lake import SUFFIX, Lake
from relay.analytics.records import NO_LATENCY, NO_NAME, RECORD_BYTES

HOUR_US: Final = 3_600_000_000
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

ROW: Final = np.dtype(
    [
        ("event_time", "<i8"),
        ("uid", "<i8"),
        ("size_bytes", "<i8"),
        ("latency_us", "<i8"),
        ("src_twin", "<u4"),
        ("dst_twin", "<u4"),
        ("src_session", "<u4"),
        ("remote", "<u2"),
        ("kind", "u1"),
        ("reason", "u1"),
    ]
)
"""`relay.analytics.records.RECORD`."""

CODES: Final = ("src_session", "remote", "kind", "reason")
"""Columns of numbers that stand for names."""

assert ROW.itemsize == RECORD_BYTES, "the record and its row are of one size"

logger = logging.getLogger("relay.analytics.compactor")


@dataclasses.dataclass(frozen=True, slots=True)
class Converted:
    """What became of a segment.

    Attributes:
        rows: in all its files.
        hours: folders that got a file.
        whole: whether all of it could be read.
    """

    rows: int
    hours: list[tuple[date, int]]
    whole: bool


def convert(lake: Lake, path: Path) -> Converted:
    """Make Parquet of a closed segment.

    Raises:
        OSError: the disk is full or out of order; the segment stays.
    """
    try:
        reader = segments.SegmentReader(path.read_bytes(), path)
        rows = _rows(reader)
        columns = _Columns(reader)
        columns.check(rows, path)
        hours = _hours(rows, path)
    except segments.SegmentError as error:
        logger.error("put aside: %s", error)
        gaps.write(lake.root, backlog.gap_of(path, None, Why.TORN))
        backlog.put_aside(path)
        return Converted(0, [], whole=False)
    _write(lake, path, columns, rows, hours)
    header = reader.header
    if reader.torn_bytes:
        from_us = reader.until_us
        to_us = max(from_us, backlog.changed_us(path))
        gaps.write(lake.root, Gap(header.relay, header.worker, from_us, to_us, None, Why.TORN))
        backlog.put_aside(path)
        logger.error(
            "%s: the last %d bytes are torn; what came before is kept", path, reader.torn_bytes
        )
    else:
        path.unlink()
        segments.sync_folder(path.parent)
    return Converted(len(rows), list(hours.values()), whole=not reader.torn_bytes)


def _rows(reader: segments.SegmentReader) -> Any:
    rows = [np.frombuffer(block, dtype=ROW) for block in reader.records()]
    return np.concatenate(rows) if rows else np.empty(0, dtype=ROW)


def _hours(rows: Any, path: Path) -> dict[int, tuple[date, int]]:
    """The hours since 1970 in which there are events, as day and hour."""
    found = {}
    for number in np.unique(rows["event_time"] // HOUR_US).tolist():
        try:
            moment = EPOCH + timedelta(hours=number)
        except OverflowError:
            raise segments.SegmentError(f"{path}: has an event of no year there is") from None
        found[number] = (moment.date(), moment.hour)
    return found


def _write(
    lake: Lake, path: Path, columns: _Columns, rows: Any, hours: dict[int, tuple[date, int]]
) -> None:
    stem = path.name.removesuffix(segments.SUFFIX)
    hour_of = rows["event_time"] // HOUR_US
    for number, (day, hour) in hours.items():
        some = rows[hour_of == number]
        name = f"{stem}-{day:%Y%m%d}{hour:02}{SUFFIX}"
        with new_file(lake.hour(day, hour) / name) as file:
            for start in range(0, len(some), ROW_GROUP):
                file.write(columns.table(some[start : start + ROW_GROUP]))


class _Columns:
    """Makes Arrow of records, with the names of one segment."""

    def __init__(self, reader: segments.SegmentReader) -> None:
        self._texts = {
            "kind": _strings(reader.header.kinds),
            "reason": _strings(reader.header.reasons),
            "src_session": _strings(reader.names["sessions"]),
            "remote": _strings(reader.names["remotes"]),
            "relay": _strings([reader.header.relay]),
        }

    def check(self, rows: Any, path: Path) -> None:
        """
        Raises:
            SegmentError: a record has a number that stands for nothing.
        """
        for column in CODES:
            largest, names = int(rows[column].max(initial=0)), len(self._texts[column])
            if largest >= names:
                raise segments.SegmentError(
                    f"{path}: has the number {largest} of a {column}, and names {names}"
                )

    def table(self, rows: Any) -> pa.Table:
        """A table of the lake's schema."""
        columns = []
        for field in EVENTS:
            if field.name == "relay":
                columns.append(self._text("relay", np.zeros(len(rows), dtype=np.int32)))
            elif field.name in self._texts:
                codes = rows[field.name]
                known = codes != NO_NAME if field.name == "remote" else None
                columns.append(self._text(field.name, codes.astype(np.int32), known))
            else:
                values = rows[field.name].astype(np.int64)
                known = values != NO_LATENCY if field.name == "latency_us" else None
                columns.append(_array(field.type, values, known))
        return pa.Table.from_arrays(columns, schema=EVENTS)

    def _text(self, name: str, codes: Any, known: Any = None) -> pa.DictionaryArray:
        return pa.DictionaryArray.from_arrays(_array(pa.int32(), codes, known), self._texts[name])


# Not `pa.array`: it imports pandas, which takes 45 MB and a third of a second.


def _array(kind: pa.DataType, values: Any, known: Any = None) -> pa.Array:
    """Arrow of numpy, without a copy; null where it is not known."""
    nulls = None if known is None else pa.py_buffer(np.packbits(known, bitorder="little"))
    return pa.Array.from_buffers(kind, len(values), [nulls, pa.py_buffer(values)])


def _strings(texts: Sequence[str]) -> pa.Array:
    encoded = [text.encode(errors="replace") for text in texts]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    content = pa.py_buffer(b"".join(encoded))
    return pa.Array.from_buffers(pa.string(), len(texts), [None, pa.py_buffer(ends), content])

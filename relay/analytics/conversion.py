"""Conversion of one closed segment to Parquet: one file for each hour that has events.

    segment -> blocks of records -> by hour -> Arrow -> Parquet, a file each -> segment gone

The name of a file consists of the segment's name and the hour. A conversion that was killed is
repeated, and its files replace those it wrote before. The segment is removed last, when all files
are on the disk. A segment with a torn end, or one that cannot be read at all, is kept under another
name, and a gap is recorded for it.
"""

from __future__ import annotations

import dataclasses
import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from relay.analytics import backlog, gaps, segments
from relay.analytics.arrow_schema import OF_SEGMENTS
from relay.analytics.event_files import new_file
from relay.analytics.gaps import Gap, Why
from relay.analytics.lake import SUFFIX, Lake
from relay.analytics.records import NO_LATENCY, NO_NAME, RECORD_BYTES, SBD
from relay.analytics.spark import schema

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
"""numpy type of `relay.analytics.records.RECORD`."""

_KEYS: Final = {"src_key": "src_session", "dst_key": "dst_twin"}
"""Key columns, and the fields of the record that hold the numbers of the keys in rows of SBD."""

PIECE: Final = 16_384
"""Minimum records converted to Arrow at once; less than a recorder's full buffer of 1 MiB."""

assert ROW.itemsize == RECORD_BYTES, "the record and its row are of one size"

logger = logging.getLogger("relay.analytics.compactor")


@dataclasses.dataclass(frozen=True, slots=True)
class Converted:
    """Result of the conversion of a segment.

    Attributes:
        rows: number of rows in all its files.
        hours: days and hours that got a file.
        whole: whether all of the segment could be read.
    """

    rows: int
    hours: list[tuple[date, int]]
    whole: bool


def convert(lake: Lake, path: Path) -> Converted:
    """Convert a closed segment to Parquet.

    Raises:
        OSError: the disk is full or broken; the segment stays.
    """
    try:
        reader = segments.SegmentReader(path.read_bytes(), path)
        blocks = [np.frombuffer(block, dtype=ROW) for block in reader.records()]
        tables = _tables(_Columns(path, reader), _pieces(blocks))
        hours = {number: _day_and_hour(path, number) for number in sorted(tables)}
    except segments.SegmentError as error:
        logger.error("put aside: %s", error)
        gaps.write(lake.root, backlog.gap_of(path, None, Why.TORN))
        backlog.put_aside(path)
        return Converted(0, [], whole=False)
    stem = path.name.removesuffix(segments.SUFFIX)
    for number, (day, hour) in hours.items():
        name = f"{stem}-{day:%Y%m%d}{hour:02}{SUFFIX}"
        with new_file(lake.hour(day, hour) / name, schema=OF_SEGMENTS) as file:
            file.write(pa.concat_tables(tables.pop(number)))
    header = reader.header
    if reader.torn_bytes:
        from_us = reader.until_us
        to_us = max(from_us, backlog.changed_us(path))
        rows = reader.torn_bytes // RECORD_BYTES
        gap = Gap(header.relay, header.worker, from_us, to_us, None, Why.TORN, rows, rows)
        gaps.write(lake.root, gap)
        backlog.put_aside(path)
        logger.error(
            "%s: the last %d bytes are torn; what came before is kept", path, reader.torn_bytes
        )
    else:
        path.unlink()
        segments.sync_folder(path.parent)
    return Converted(sum(map(len, blocks)), list(hours.values()), whole=not reader.torn_bytes)


def _pieces(blocks: Iterable[Any]) -> Iterator[Any]:
    """Join small blocks of records into pieces of at least `PIECE` records.

    Such pieces are worth a conversion, and still fit into the processor's cache.
    """
    small: list[Any] = []
    records = 0
    for block in blocks:
        small.append(block)
        records += len(block)
        if records >= PIECE:
            yield np.concatenate(small) if len(small) > 1 else block
            small, records = [], 0
    if records:
        yield np.concatenate(small)


def _tables(columns: _Columns, pieces: Iterable[Any]) -> dict[int, list[pa.Table]]:
    """Return the Arrow tables by hours since 1970."""
    tables: defaultdict[int, list[pa.Table]] = defaultdict(list)
    for piece in pieces:
        times = piece["event_time"]
        first, last = (int(time) // HOUR_US for time in (times.min(), times.max()))
        if first == last:
            tables[first].append(columns.table(piece))
            continue
        hours = times // HOUR_US
        for hour in np.unique(hours).tolist():
            tables[hour].append(columns.table(piece[hours == hour]))
    return tables


def _day_and_hour(path: Path, hour: int) -> tuple[date, int]:
    try:
        moment = EPOCH + timedelta(hours=hour)
    except OverflowError:
        raise segments.SegmentError(f"{path}: has an event of no year there is") from None
    return moment.date(), moment.hour


class _Columns:
    """Conversion of records to Arrow columns, with the names of one segment."""

    def __init__(self, path: Path, reader: segments.SegmentReader) -> None:
        self._path = path
        self._texts = {
            "kind": as_strings(reader.header.kinds),
            "reason": as_strings(reader.header.reasons),
            "src_session": as_strings(reader.names["sessions"]),
            "remote": as_strings(reader.names["remotes"]),
            "relay": as_strings([reader.header.relay]),
            "protocol": as_strings(schema.PROTOCOLS),
            "src_key": (keys := as_strings(reader.names["keys"])),
            "dst_key": keys,
        }

    def table(self, rows: Any) -> pa.Table:
        """Return the rows as a table with the columns of segments.

        Raises:
            SegmentError: a record has a number without a name.
        """
        sbd = rows["kind"] >= SBD
        some_sbd = bool(sbd.any())
        columns = []
        for field in OF_SEGMENTS:
            if field.name in self._texts:
                columns.append(self._text(field.name, *_codes(field.name, rows, sbd)))
            else:
                values, known = rows[field.name].astype(np.int64), None
                if field.name == "latency_us":
                    known = values != NO_LATENCY
                elif some_sbd and field.name in ("src_twin", "dst_twin"):
                    known = ~sbd
                columns.append(as_array(field.type, values, known))
        return pa.Table.from_arrays(columns, schema=OF_SEGMENTS)

    def _text(self, name: str, codes: Any, known: Any) -> pa.DictionaryArray:
        names = self._texts[name]
        if (largest := int(codes.max())) >= len(names):
            raise segments.SegmentError(
                f"{self._path}: has the number {largest} of a {name}, and names {len(names)}"
            )
        indices = as_array(pa.int32(), codes.astype(np.int32), known)
        return pa.DictionaryArray.from_arrays(indices, names, safe=False)  # checked above


def _codes(name: str, rows: Any, sbd: Any) -> tuple[Any, Any]:
    """Return the codes of a column's texts, and a mask of the known ones; None: all are known."""
    known = None
    if name == "relay":
        codes = np.zeros(len(rows), dtype=np.int32)
    elif name == "protocol":
        codes = sbd
    elif name in _KEYS:
        codes = np.where(sbd, rows[_KEYS[name]], NO_NAME)
        known = codes != NO_NAME
    elif name == "kind":
        codes = rows["kind"] & ~np.uint8(SBD)
    elif name == "src_session":
        codes = np.where(sbd, NO_NAME, rows[name])
    else:
        codes = rows[name]
        known = codes != NO_NAME if name == "remote" else None
    return codes, known


# `pa.array` is not used: it imports pandas, which takes 45 MB and a third of a second.


def as_array(kind: pa.DataType, values: Any, known: Any = None) -> pa.Array:
    """Return an Arrow array over numpy data without a copy, null where `known` is false."""
    nulls = None if known is None else pa.py_buffer(np.packbits(known, bitorder="little"))
    return pa.Array.from_buffers(kind, len(values), [nulls, pa.py_buffer(values)])


def as_strings(texts: Sequence[str]) -> pa.Array:
    encoded = [text.encode(errors="replace") for text in texts]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    content = pa.py_buffer(b"".join(encoded))
    return pa.Array.from_buffers(pa.string(), len(texts), [None, pa.py_buffer(ends), content])

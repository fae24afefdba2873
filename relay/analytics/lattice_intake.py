"""Events of the lattice, from the stream of its processes into the lake.

    bridge, monitor -> batches in Redis (`proto.lattice.recording`) -> Parquet, a file for each hour

A file is named after the entry of the stream, which is removed when the file is on the disk. If the
process is killed in between, the next attempt replaces the file. An entry that cannot be read is
logged and removed.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator
from datetime import date, datetime, timedelta
from typing import Any, Final, cast

import numpy as np
import pyarrow as pa
from redis import Redis

from proto.lattice import recording
from proto.lattice.errors import FormatError
from proto.lattice.recording import STREAM, Batch, EventKind, decode_batch
from relay.analytics.arrow_schema import EVENTS
from relay.analytics.conversion import EPOCH, HOUR_US, as_array, as_strings
from relay.analytics.event_files import new_file
from relay.analytics.lake import SUFFIX, Lake
from relay.analytics.spark import schema

Hour = tuple[date, int]
_Entry = tuple[bytes, dict[bytes, bytes]]

AT_ONCE: Final = 8
"""Number of entries read into memory at once."""

ROW: Final = np.dtype(
    [
        ("event_time", "<i8"),
        ("uid", "<i8"),
        ("latency_us", "<i8"),
        ("size_bytes", "<u4"),
        ("answer_bytes", "<u4"),
        ("twin", "<u4"),
        ("shape", "<u4"),
    ]
)
"""numpy type of `proto.lattice.recording.ROW`."""

_TEXTS: Final = {
    "kind": "kind",
    "reason": "reason",
    "src_key": "origin",
    "dst_key": "target",
    "link": "link",
    "contract": "contract",
    "operation": "operation",
    "host_id": "host_id",
}
"""Text columns, and the fields of shapes that they come from."""

assert ROW.itemsize == recording.ROW.size, "the record and its row are of one size"

logger = logging.getLogger("relay.analytics.compactor")


def take_in(lake: Lake, client: Redis, relay: str) -> Iterator[tuple[int, Collection[Hour]]]:
    """Write the events of the stream into a lake, one entry after another.

    Args:
        lake: lake that gets the events.
        client: client of Redis.
        relay: name of this relay.

    Yields:
        Number of rows of an entry, and the hours that got a file.

    Raises:
        redis.exceptions.RedisError: Redis does not answer.
        OSError: the disk is full or broken; entries stay in the stream.
    """
    while found := cast("list[_Entry]", client.xrange(STREAM, count=AT_ONCE)):
        for entry, fields in found:
            try:
                tables = _by_hour(decode_batch(fields), relay)
            except (FormatError, OverflowError) as error:
                logger.error("events of the lattice that cannot be read are dropped: %s", error)
                tables = {}
            with lake.changing():
                for (day, hour), table in tables.items():
                    name = f"lattice-{entry.decode()}-{day:%Y%m%d}{hour:02}{SUFFIX}"
                    with new_file(lake.hour(day, hour) / name) as file:
                        file.write(table)
            client.xdel(STREAM, entry)
            yield sum(table.num_rows for table in tables.values()), tables.keys()


def _by_hour(batch: Batch, relay: str) -> dict[Hour, pa.Table]:
    """Return tables by day and hour.

    Raises:
        FormatError: a row has the number of a shape that does not exist.
        OverflowError: the time of a row is out of range.
    """
    rows = np.frombuffer(batch.rows, dtype=ROW)
    if len(rows) and int(rows["shape"].max()) >= len(batch.shapes):
        raise FormatError("Batch: a row has a shape that is not there", "rows")
    numbers = rows["event_time"] // HOUR_US
    found = {}
    for number in np.unique(numbers).tolist():
        moment = EPOCH + timedelta(hours=number)
        found[_hour(moment)] = table(rows[numbers == number], batch, relay)
    return found


def _hour(moment: datetime) -> Hour:
    return moment.date(), moment.hour


def table(rows: Any, batch: Batch, relay: str) -> pa.Table:
    """Return rows as an Arrow table.

    Args:
        rows: array of the type `ROW`.
        batch: batch that has the shapes of the rows.
        relay: relay that records the rows.
    """
    kinds = np.array([shape.kind for shape in batch.shapes])[rows["shape"]]
    twins = rows["twin"].astype(np.int64)
    has_twin = twins != recording.NO_TWIN
    latency = rows["latency_us"]
    columns: dict[str, pa.Array] = {
        "event_time": as_array(EVENTS.field("event_time").type, rows["event_time"].copy()),
        "relay": _constant(relay, len(rows)),
        "src_twin": as_array(pa.int64(), twins, has_twin & (kinds == EventKind.OUT)),
        "dst_twin": as_array(pa.int64(), twins, has_twin & (kinds == EventKind.IN)),
        "src_session": _constant("", len(rows)),
        "size_bytes": as_array(pa.int64(), rows["size_bytes"].astype(np.int64)),
        "latency_us": as_array(pa.int64(), latency.copy(), latency != recording.NO_LATENCY),
        "uid": as_array(pa.int64(), rows["uid"].copy()),
        "protocol": _constant(schema.LATTICE, len(rows)),
        "answer_bytes": as_array(
            pa.int64(),
            rows["answer_bytes"].astype(np.int64),
            rows["answer_bytes"] != recording.NO_SIZE,
        ),
    }
    for column, field in _TEXTS.items():
        texts = [getattr(shape, field) for shape in batch.shapes]
        columns[column] = _texts(texts, rows["shape"])
    made = [
        columns[field.name] if field.name in columns else pa.nulls(len(rows), field.type)
        for field in EVENTS
    ]
    return pa.Table.from_arrays(made, schema=EVENTS)


def _constant(text: str, count: int) -> pa.Array:
    codes = as_array(pa.int32(), np.zeros(count, np.int32))
    return pa.DictionaryArray.from_arrays(codes, as_strings([text]))


def _texts(of_shapes: Iterable[str], shapes: Any) -> pa.Array:
    """Return one text for each row, null if it is empty."""
    codes: dict[str, int] = {"": 0}
    of_shape = np.array([codes.setdefault(text, len(codes)) for text in of_shapes], np.int32)
    found = of_shape[shapes]
    return pa.DictionaryArray.from_arrays(
        as_array(pa.int32(), found, found != 0), as_strings([*codes])
    )

"""The schema of events for Arrow, and how its columns are written to Parquet.

The columns are those of `relay.analytics.spark.schema`. Numbers that are no good dictionary are
split into their bytes before they are compressed, which makes a row a sixth smaller; times follow
each other and are kept as differences; texts are few and are kept as a dictionary. A uid is a hash:
nothing makes it smaller.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
from pyspark.sql import types

from relay.analytics.spark import schema

_ARROW: Final = {
    types.TimestampType: pa.timestamp("us", tz="UTC"),
    types.StringType: pa.dictionary(pa.int32(), pa.string()),
    types.LongType: pa.int64(),
}

EVENTS: Final = pa.schema(
    [(field.name, _ARROW[type(field.dataType)]) for field in schema.EVENTS.fields],
    metadata={schema.VERSION_KEY: str(schema.VERSION)},
)

_OF_LATTICE: Final = ("link", "contract", "operation", "host_id", "answer_bytes")

OF_SEGMENTS: Final = pa.schema(
    [field for field in EVENTS if field.name not in _OF_LATTICE], metadata=EVENTS.metadata
)
"""Without the columns that no segment has: writing nulls would take a sixth of the time."""

TEXTS: Final = tuple(field.name for field in EVENTS if pa.types.is_dictionary(field.type))

ROW_GROUP: Final = 1 << 20
"""Rows; a reader holds one at a time for each of its threads."""

WRITING: Final[dict[str, Any]] = {
    "compression": "zstd",
    "compression_level": 1,  # 3 and 9 were measured to gain nothing
    "use_dictionary": list(TEXTS),
    "column_encoding": {
        field.name: "BYTE_STREAM_SPLIT" for field in EVENTS if field.type == pa.int64()
    }
    | {"event_time": "DELTA_BINARY_PACKED", "uid": "PLAIN"},
    "write_page_checksum": True,  # a file that rots is noticed by whoever reads it whole
}
"""Arguments of `pyarrow.parquet.ParquetWriter`."""


def version_of(metadata: dict[bytes, bytes] | None) -> int:
    """The version of the schema in a file's metadata; 0 where there is none.

    Raises:
        ValueError: it is no number.
    """
    return int((metadata or {}).get(schema.VERSION_KEY.encode(), b"0"))

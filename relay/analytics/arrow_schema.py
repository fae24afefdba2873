"""Arrow schema of events, and how its columns are written to Parquet.

The columns are those of `relay.analytics.spark.schema`. Text columns have few different values and
are written with a dictionary. Times are nearly sorted and are written as differences. Other numbers
do not suit a dictionary: their bytes are split into streams before compression, which makes a row
a sixth smaller. A uid is a hash, which no encoding makes smaller.
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
"""Schema without the columns that no segment has: writing their nulls takes a sixth of the time."""

TEXTS: Final = tuple(field.name for field in EVENTS if pa.types.is_dictionary(field.type))

ROW_GROUP: Final = 1 << 20
"""Rows of a row group. A reader holds one row group in memory for each of its threads."""

WRITING: Final[dict[str, Any]] = {
    "compression": "zstd",
    "compression_level": 1,  # levels 3 and 9 made no difference when measured
    "use_dictionary": list(TEXTS),
    "column_encoding": {
        field.name: "BYTE_STREAM_SPLIT" for field in EVENTS if field.type == pa.int64()
    }
    | {"event_time": "DELTA_BINARY_PACKED", "uid": "PLAIN"},
    "write_page_checksum": True,  # readers of all rows detect a damaged file
}
"""Keyword arguments of `pyarrow.parquet.ParquetWriter`."""


def version_of(metadata: dict[bytes, bytes] | None) -> int:
    """Return the version of the schema in a file's metadata; 0 if it has none.

    Raises:
        ValueError: it is not a number.
    """
    return int((metadata or {}).get(schema.VERSION_KEY.encode(), b"0"))

"""The schema of events as Arrow has it, and how its columns are written to Parquet.

Words are dictionaries; numbers that hardly repeat are split by their bytes, whose upper ones are
nearly always equal; times grow slowly, so their differences are small. Together with zstd at its
lowest level a row takes 15.6 bytes, half of them the uid; higher levels gain nothing.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
from pyspark.sql import types

from relay.analytics.spark import schema

_WORDS: Final = pa.dictionary(pa.int32(), pa.string())
_ARROW: Final[dict[type[types.DataType], pa.DataType]] = {
    types.TimestampType: pa.timestamp("us", "UTC"),
    types.StringType: _WORDS,
    types.LongType: pa.int64(),
}

EVENTS: Final = pa.schema(
    [pa.field(field.name, _ARROW[type(field.dataType)]) for field in schema.EVENTS],
    {schema.VERSION_KEY: str(schema.VERSION)},
)
"""What is in a file, its version in the metadata."""

ROW_GROUP: Final = 1_000_000

_SPLIT: Final = ("src_twin", "dst_twin", "size_bytes", "latency_us")

WRITE: Final[dict[str, Any]] = {
    "compression": "zstd",
    "compression_level": 1,
    "use_dictionary": [field.name for field in EVENTS if field.type == _WORDS],
    "column_encoding": {
        "event_time": "DELTA_BINARY_PACKED",
        "uid": "PLAIN",
        **dict.fromkeys(_SPLIT, "BYTE_STREAM_SPLIT"),
    },
}
"""How, as arguments of `pyarrow.parquet`'s writers."""

"""Usage of a month as a file for billing: CSV with a line of sums, or Parquet."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import IO, Any, Final

from relay.access.errors import Away
from relay.analytics import listing, usage_csv
from relay.analytics.results import columns

FORMS: Final = {"csv": "CSV", "parquet": "Parquet"}
STEP: Final = 2000
"""Rows read at once. A month may have hundreds of thousands of twins."""

_TABLE: Final = "usage"


def csv_lines(month: str) -> Iterator[str]:
    """Yield the lines: column names, one line for each twin in ascending order, and the sums."""
    return usage_csv.lines(_rows(month, columns(_TABLE)))


def parquet(month: str) -> IO[bytes]:
    """Return the same rows as a Parquet file, without the line of sums.

    Raises:
        Away: pyarrow is not installed.
    """
    try:
        import pyarrow as pa
        from pyarrow import parquet as files
    except ImportError:
        raise Away("Parquet files are made with pyarrow: make setup-analytics") from None
    names = columns(_TABLE)
    kinds = [pa.string(), *(pa.int64() for _ in names[1:])]
    schema = pa.schema(list(zip(names, kinds, strict=True)))
    found = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
    with files.ParquetWriter(found, schema, compression="zstd") as writer:
        batch: list[Any] = []
        for values in _rows(month, names):
            batch.append(dict(zip(names, values, strict=True)))
            if len(batch) >= STEP:
                writer.write_table(pa.Table.from_pylist(batch, schema))
                batch = []
        writer.write_table(pa.Table.from_pylist(batch, schema))
    found.seek(0)
    return found


def _rows(month: str, names: list[str]) -> Iterator[tuple[Any, ...]]:
    rows = listing.of_month(_TABLE, month).order_by("twin").values_list(*names)
    yield from rows.iterator(chunk_size=STEP)

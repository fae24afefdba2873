"""Merging: many small files of an hour become one file.

    files of an hour, none of them new -> rows in their order -> one merged file -> (a day) -> gone

At any moment, one reader may have listed the old files and another one the new file. So the merged
file lists those it replaces (`relay.analytics.lake`), and these stay for `KEEP_S`, which is longer
than a job takes. Late rows make further files, and the next merging joins them with the merged one.
Rows are copied one row group at a time, so an hour need not fit into memory.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyarrow import parquet

from relay.analytics import arrow_schema
from relay.analytics.errors import AnalyticsError
from relay.analytics.event_files import new_file
from relay.analytics.lake import (
    MERGED_SUFFIX,
    REPLACES_KEY,
    Lake,
    LakeError,
    LakeFile,
    fingerprint,
    is_broken,
    replaced_by,
)
from relay.analytics.places import DRAFT
from relay.analytics.segments import SUFFIX as SEGMENT_SUFFIX
from relay.analytics.spark import schema

QUIET_S: Final = 3_600.0
"""Seconds without a new file after which an hour is merged; rows arrive within seconds."""

KEEP_S: Final = 86_400.0
"""Seconds for which a replaced file stays; longer than any job reads."""


class LaterVersionError(AnalyticsError):
    """A file is of a later version of the schema.

    Attributes:
        why: what is wrong with it.
    """

    def __init__(self, path: Path, version: int) -> None:
        self.why = f"is of version {version} of the schema, this release reads {schema.VERSION}"
        super().__init__(f"{path}: {self.why}: upgrade before it is used")


logger = logging.getLogger("relay.analytics.compactor")


def merge(lake: Lake, day: date, hour: int) -> Path | None:
    """Merge the files of an hour into one, and return its path; None if there is nothing to merge.

    Raises:
        LakeError: a file cannot be read; nothing was changed.
        LaterVersionError: a file is of a later version; nothing was changed.
        OSError: the disk is full or broken; nothing was changed.
    """
    files = lake.files_of(day, hour)
    if len(files) < 2 or any(_may_come_again(lake, file) for file in files):
        return None
    # Files that a merged one replaced may still exist: they must not count again when it is gone.
    replaced = {file.path.name for file in files}
    replaced |= {name for file in files if file.merged for name in replaced_by(file.path)}
    path = lake.hour(day, hour) / f"{fingerprint(files)}{MERGED_SUFFIX}"
    with new_file(path, {REPLACES_KEY: json.dumps(sorted(replaced)).encode()}) as writer:
        for file in files:
            for table in read(file.path):
                writer.write(table)
    for draft in path.parent.glob(f"{DRAFT}*.merged"):
        draft.unlink()  # left by a merging that was killed
    logger.info("%s: %d files, %d rows", path, len(files), writer.rows)
    return path


def is_quiet(lake: Lake, day: date, hour: int, now_s: float) -> bool:
    """Check whether an hour has several files that count, and none of them is recent."""
    files = lake.files_of(day, hour)
    try:
        newest_s = max(file.path.stat().st_mtime for file in files) if files else now_s
    except FileNotFoundError:
        return False
    return len(files) > 1 and newest_s <= now_s - QUIET_S


def remove_replaced(lake: Lake, day: date, hour: int, now_s: float) -> int:
    """Remove the files that were replaced long enough ago.

    Returns:
        Number of replaced files that stay for now.

    Raises:
        LakeError: a merged file does not list the files it replaces.
    """
    present = lake.present(day, hour)
    replaced_at_s: dict[str, float] = {}
    for file in present:
        if file.merged and len(present) > 1:
            merged_at_s = file.path.stat().st_mtime
            for name in replaced_by(file.path):
                replaced_at_s[name] = min(merged_at_s, replaced_at_s.get(name, merged_at_s))
    waiting = 0
    for file in present:
        if file.path.name not in replaced_at_s or _may_come_again(lake, file):
            continue
        if replaced_at_s[file.path.name] <= now_s - KEEP_S:
            file.path.unlink()
        else:
            waiting += 1
    return waiting


def _may_come_again(lake: Lake, file: LakeFile) -> bool:
    """Check whether the segment of a file still exists.

    If a conversion is killed before it removes the segment, the next one writes the file again.
    """
    if file.merged:
        return False
    stem = file.path.name.rpartition("-")[0]
    return (lake.segments / f"{stem}{SEGMENT_SUFFIX}").exists()


def read(path: Path) -> Iterator[pa.Table]:
    """Yield the rows of a file, one row group at a time, in the current schema.

    Raises:
        LakeError: the file cannot be read.
        LaterVersionError: the file is of a later version of the schema.
    """
    try:
        with parquet.ParquetFile(path, page_checksum_verification=True) as file:
            version = arrow_schema.version_of(file.schema_arrow.metadata)
            if version > schema.VERSION:
                raise LaterVersionError(path, version)
            for number in range(file.num_row_groups):
                yield _in_present_schema(file.read_row_group(number))
    except (OSError, pa.ArrowException, ValueError) as error:
        raise LakeError(path, f"cannot be read ({error})", broken=is_broken(error)) from None


def _in_present_schema(table: pa.Table) -> pa.Table:
    columns = [
        table[field.name].cast(field.type)
        if field.name in table.column_names
        else _lacking(field, table.num_rows)
        for field in arrow_schema.EVENTS
    ]
    return pa.table(columns, schema=arrow_schema.EVENTS)


def _lacking(field: pa.Field, rows: int) -> pa.Array:
    """Return a column that files of an earlier version do not have."""
    if field.name == "protocol":
        return pa.repeat(schema.RMB, rows).dictionary_encode()
    return pa.nulls(rows, field.type)

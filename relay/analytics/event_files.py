"""Atomic writing of Parquet files of events: a file exists as a whole, or not at all.

The file is written as `_tmp-<name>` in its folder, synced and renamed, and the folder is synced. A
process that is killed before the rename leaves a draft, which readers skip and the next attempt
overwrites. After the rename the file is on the disk.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from relay.analytics.arrow_schema import EVENTS, ROW_GROUP, WRITING
from relay.analytics.lake import SUFFIX
from relay.analytics.places import DRAFT
from relay.analytics.segments import sync_folder


class EventsWriter:
    """Writer that collects tables of events and writes them in row groups of one size."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer
        self._waiting: list[pa.Table] = []
        self._waiting_rows = 0
        self.rows = 0

    def write(self, table: pa.Table) -> None:
        """Add rows. All parts of one table must have the same dictionary for each column."""
        self.rows += table.num_rows
        self._waiting.append(table)
        self._waiting_rows += table.num_rows
        if self._waiting_rows >= ROW_GROUP:
            self.flush()

    def flush(self) -> None:
        """Write the collected rows."""
        if self._waiting:
            table = self._waiting[0]
            if len(self._waiting) > 1:  # each table has other dictionaries
                table = pa.concat_tables(self._waiting).unify_dictionaries()
            self._writer.write_table(table, row_group_size=ROW_GROUP)
        self._waiting = []
        self._waiting_rows = 0


@contextlib.contextmanager
def new_file(
    path: Path, metadata: Mapping[bytes, bytes] | None = None, schema: pa.Schema = EVENTS
) -> Iterator[EventsWriter]:
    """Write a file of events, which appears when the block ends without an error.

    A file of the same name is replaced.

    Args:
        path: path of the file.
        metadata: metadata in addition to the version of the schema.
        schema: schema of the rows.

    Raises:
        OSError: the disk is full or broken; no draft is left.
    """
    make_folder(path.parent)
    schema = schema.with_metadata({**schema.metadata, **(metadata or {})})
    draft = path.with_name(DRAFT + path.name.removesuffix(SUFFIX))
    try:
        with draft.open("wb") as file:
            with parquet.ParquetWriter(file, schema, **WRITING) as parquet_writer:
                writer = EventsWriter(parquet_writer)
                yield writer
                writer.flush()
            file.flush()
            os.fsync(file.fileno())
        draft.rename(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def make_folder(folder: Path) -> None:
    """Create a folder and its parents so that all of them survive a loss of power."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)

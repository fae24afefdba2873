"""Looks whether the files of events can be read, and takes those that cannot out of the way.

A footer tells whether a file is whole, of a schema this release knows, and of the columns it should
have; its pages have checksums, which tell whether the rows are still what was written.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet

from relay.analytics import arrow_schema, gaps, merging
from relay.analytics.conversion import HOUR_US
from relay.analytics.event_files import make_folder
from relay.analytics.gaps import Gap, Why
from relay.analytics.lake import Lake, LakeError, LakeFile, replaced_by
from relay.analytics.segments import sync_folder
from relay.analytics.spark import schema


@dataclasses.dataclass(frozen=True, slots=True)
class Checked:
    """One file.

    Attributes:
        file: which.
        rows: how many it has.
        wrong: why it cannot be read; empty if it can.
        broken: whether no release can read it.
    """

    file: LakeFile
    rows: int
    wrong: str = ""
    broken: bool = False


def check(file: LakeFile, *, whole: bool) -> Checked:
    """Look at a file.

    Args:
        file: of a lake.
        whole: read its rows as well.
    """
    try:
        with parquet.ParquetFile(file.path) as found:
            rows, columns = found.metadata.num_rows, found.schema_arrow
        version = arrow_schema.version_of(columns.metadata)
        if version > schema.VERSION:
            return Checked(file, rows, merging.LaterVersionError(file.path, version).why)
        _compare(columns)
        if file.merged:
            replaced_by(file.path)
        if whole:
            rows = sum(table.num_rows for table in merging.read(file.path))
    except LakeError as error:
        return Checked(file, 0, error.why, broken=True)
    except (OSError, pa.ArrowException, ValueError) as error:
        return Checked(file, 0, str(error) or type(error).__name__, broken=True)
    return Checked(file, rows)


def _compare(columns: pa.Schema) -> None:
    for field in arrow_schema.EVENTS:
        if field.name in columns.names:  # a file may be from before a column was
            kind = _plain(columns.field(field.name).type)
            if kind != _plain(field.type):
                raise ValueError(f"its column {field.name} is {kind}, not {_plain(field.type)}")


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def files(lake: Lake) -> Iterator[LakeFile]:
    """Every file of a lake, also those another one stands for."""
    for day in lake.days():
        for hour in lake.hours(day):
            yield from lake.present(day, hour)


def put_aside(lake: Lake, file: LakeFile) -> Path:
    """Take a file that cannot be read out of every reader's way.

    What it was made of counts again as far as it is still there; otherwise a gap tells that rows of
    its hour are missing.
    """
    beside = [other for other in lake.present(file.date, file.hour) if other != file]
    if not any(_stands_for(other, file) for other in beside):
        start = datetime(file.date.year, file.date.month, file.date.day, file.hour, tzinfo=UTC)
        start_us = int(start.timestamp()) * 1_000_000
        end_us = start_us + HOUR_US - 1
        relay, _, rest = ("", "", "") if file.merged else file.path.name.partition("-")
        worker = rest.partition("-")[0]
        gaps.write(lake.root, Gap(relay, worker, start_us, end_us, None, Why.DISK))
    make_folder(lake.bad)
    target = lake.bad / f"{file.date}-{file.hour:02}-{file.path.name}"
    file.path.rename(target)
    sync_folder(lake.bad)
    sync_folder(file.path.parent)
    return target


def _stands_for(other: LakeFile, file: LakeFile) -> bool:
    try:
        return other.merged and file.path.name in replaced_by(other.path)
    except LakeError:
        return False

"""Check that files of events can be read, and move broken files out of the readers' way.

The footer of a file shows whether the file is complete, whether this release knows its schema, and
whether its columns have the expected types. Checksums of the pages show whether the rows are still
as they were written.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet

from relay.analytics import arrow_schema, backlog, gaps, merging
from relay.analytics.conversion import HOUR_US
from relay.analytics.event_files import make_folder
from relay.analytics.gaps import Gap, Why
from relay.analytics.lake import Lake, LakeError, LakeFile, is_broken, replaced_by
from relay.analytics.segments import sync_folder
from relay.analytics.spark import schema


@dataclasses.dataclass(frozen=True, slots=True)
class Checked:
    """Result of the check of one file.

    Attributes:
        file: the checked file.
        rows: number of its rows.
        wrong: why it cannot be read; empty if it can.
        broken: whether it can never be read, neither by another release nor by a retry.
    """

    file: LakeFile
    rows: int
    wrong: str = ""
    broken: bool = False


def check(file: LakeFile, *, whole: bool) -> Checked | None:
    """Check a file; return None if it was removed after it was listed.

    Args:
        file: file of a lake.
        whole: whether to read its rows as well.
    """
    found = _look(file, whole=whole)
    return found if not found.wrong or file.path.exists() else None


def _look(file: LakeFile, *, whole: bool) -> Checked:
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
        return Checked(file, 0, error.why, broken=error.broken)
    except (OSError, pa.ArrowException, ValueError) as error:
        return Checked(file, 0, str(error) or type(error).__name__, broken=is_broken(error))
    return Checked(file, rows)


def _compare(columns: pa.Schema) -> None:
    for field in arrow_schema.EVENTS:
        if field.name in columns.names:  # files of earlier releases lack some columns
            kind = _plain(columns.field(field.name).type)
            if kind != _plain(field.type):
                raise ValueError(f"its column {field.name} is {kind}, not {_plain(field.type)}")


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def files(lake: Lake) -> Iterator[LakeFile]:
    """Yield every file of a lake, including files that a merged file replaces."""
    for day in lake.days():
        for hour in lake.hours(day):
            yield from lake.present(day, hour)


def repair(lake: Lake, file: LakeFile, *, whole: bool) -> Path | None:
    """Move a file out of the readers' way if it is still broken.

    If the file is a merged one, the files it replaced count again, as far as they still exist. A
    gap records that rows of its hour may be missing, unless another merged file has its rows.

    Args:
        lake: lake of the file.
        file: file to move.
        whole: whether to read its rows, as in the earlier check.

    Returns:
        New path; None if the file was removed or replaced after it was listed, or can be read.

    Raises:
        OSError: the file cannot be moved.
    """
    with lake.changing():
        found = check(file, whole=whole)
        if found is None or not found.broken:
            return None
        beside = [other for other in lake.present(file.date, file.hour) if other != file]
        # The gap comes first: if this process is killed before it moves the file, the next check
        # writes the same gap again. The lock keeps others from removing the file meanwhile.
        if not any(_stands_for(other, file) for other in beside):
            gaps.write(lake.root, _gap_of(file))
        make_folder(lake.bad)
        target = lake.bad / f"{file.date}-{file.hour:02}-{file.path.name}"
        file.path.rename(target)
        sync_folder(lake.bad)
        sync_folder(file.path.parent)
        return target


def _gap_of(file: LakeFile) -> Gap:
    start = datetime(file.date.year, file.date.month, file.date.day, file.hour, tzinfo=UTC)
    start_us = int(start.timestamp()) * 1_000_000
    relay, worker = ("", "") if file.merged else backlog.owner_by_name(file.path)
    rows = None
    with contextlib.suppress(OSError, pa.ArrowException, ValueError):
        footer = parquet.read_metadata(file.path)
        rows = footer.num_rows
        relay = _relay_of_rows(footer) or relay
    end_us = start_us + HOUR_US - 1
    return Gap(relay, worker, start_us, end_us, None, Why.DISK, estimated=rows, at_most=rows)


def _relay_of_rows(footer: parquet.FileMetaData) -> str:
    """Return the relay of all rows if the statistics in the footer show only one, else ""."""
    place = footer.schema.to_arrow_schema().names.index("relay")
    told = [footer.row_group(n).column(place).statistics for n in range(footer.num_row_groups)]
    if any(each is None or not each.has_min_max for each in told):
        return ""
    names = {str(name) for each in told for name in (each.min, each.max)}
    return names.pop() if len(names) == 1 else ""


def _stands_for(other: LakeFile, file: LakeFile) -> bool:
    try:
        return other.merged and file.path.name in replaced_by(other.path)
    except LakeError:
        return False

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
from relay.analytics.lake import REPLACES_KEY, Lake, LakeError, LakeFile, replaced_by
from relay.analytics.segments import sync_folder
from relay.analytics.spark import schema


@dataclasses.dataclass(frozen=True, slots=True)
class Checked:
    """One file.

    Attributes:
        file: which.
        rows: how many it has.
        wrong: why it cannot be read; empty if it can.
    """

    file: LakeFile
    rows: int
    wrong: str


def check(file: LakeFile, *, whole: bool) -> Checked:
    """Look at a file.

    Args:
        file: of a lake.
        whole: read its rows as well.
    """
    try:
        found = parquet.ParquetFile(file.path)
        rows = found.metadata.num_rows
        wrong = _wrong_schema(found.schema_arrow)
        if not wrong and file.merged:
            replaced_by(file.path)
        if not wrong and whole:
            rows = sum(table.num_rows for table in merging.read(file.path))
    except (OSError, pa.ArrowException, ValueError) as error:
        return Checked(file, 0, str(error) or type(error).__name__)
    except LakeError as error:
        return Checked(file, 0, str(error))
    return Checked(file, rows, wrong)


def _wrong_schema(found: pa.Schema) -> str:
    version = arrow_schema.version_of(found.metadata)
    if version > schema.VERSION:
        return ""  # not broken: a release that knows it reads it
    for field in arrow_schema.EVENTS:
        if field.name not in found.names:
            continue
        kind = found.field(field.name).type
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        wanted = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        if kind != wanted:
            return f"{field.name} is {kind}, not {wanted}"
    return ""


def files(lake: Lake) -> Iterator[LakeFile]:
    """Every file of a lake, also those another one stands for."""
    for day in lake.days():
        for hour in lake.hours(day):
            yield from lake.present(day, hour)


def quarantine(lake: Lake, file: LakeFile) -> Path:
    """Take a file that cannot be read out of every reader's way.

    What it was made of counts again as far as it is still there; otherwise a gap tells that rows of
    this hour are missing.
    """
    make_folder(lake.bad)
    target = lake.bad / f"{file.date}-{file.hour:02}-{file.path.name}"
    if not _is_replaced(lake, file):
        start = datetime(file.date.year, file.date.month, file.date.day, file.hour, tzinfo=UTC)
        start_us = int(start.timestamp()) * 1_000_000
        relay, _, rest = file.path.name.partition("-")
        worker = rest.partition("-")[0]
        if file.merged:
            relay = worker = ""
        end_us = start_us + HOUR_US - 1
        gaps.write(lake.root, Gap(relay, worker, start_us, end_us, None, Why.DISK))
    file.path.rename(target)
    sync_folder(lake.bad)
    sync_folder(file.path.parent)
    return target

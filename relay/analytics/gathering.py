"""Few events of many files become a file for each day, for the session that reads them.

Spark takes a millisecond or two of processor time to open a file, and the tables of a run read the
same ones some thirty times: of a million events in hundreds of files that is most of what a run
costs. So these are copied once into the scratch folder of the session, which goes with it.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from relay.analytics import merging
from relay.analytics.arrow_schema import ROW_GROUP
from relay.analytics.event_files import EventsWriter, new_file
from relay.analytics.lake import SUFFIX, LakeFile, fingerprint


def gather(files: Iterable[LakeFile], folder: Path) -> list[Path]:
    """Files with the rows of others, one for each day.

    Args:
        files: of events.
        folder: where to; days that are there with the same rows are not written again.

    Raises:
        LakeError: a file cannot be read.
        LaterVersionError: one is of a later version of the schema.
        OSError: the disk is full, or out of order.
    """
    days: dict[date, list[LakeFile]] = {}
    for file in files:
        days.setdefault(file.date, []).append(file)
    return [_gathered(day, its, folder) for day, its in days.items()]


def _gathered(day: date, files: list[LakeFile], folder: Path) -> Path:
    path = folder / f"date={day}" / f"{fingerprint(files)}{SUFFIX}"
    if not path.exists():
        with new_file(path) as writer:
            read: list[pa.Table] = []
            for file in files:
                for table in merging.read(file.path):
                    read.append(table)
                    if sum(map(len, read)) >= ROW_GROUP:
                        _write(read, writer)
                        read = []
            if read:
                _write(read, writer)
    return path


def _write(read: list[pa.Table], writer: EventsWriter) -> None:
    """Write each kind in a row group of its own: what reads some kinds skips the others."""
    rows = pa.concat_tables(read).unify_dictionaries()
    for kind in pc.unique(rows["kind"]).to_pylist():
        of_kind = pc.is_null(rows["kind"]) if kind is None else pc.equal(rows["kind"], kind)
        writer.write(rows.filter(of_kind))
        writer.flush()

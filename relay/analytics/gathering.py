"""Gathering: few events in many files are copied into one file for each day, for one session.

Spark needs one or two milliseconds of processor time to open a file, and the tables of a run read
each file about thirty times: for a million events in hundreds of files, this is most of the cost of
a run. So the events are copied once, into the scratch folder of the session that reads them, which
is removed with the session.
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
    """Copy the rows of files into one file for each day, and return the new files.

    Args:
        files: files of events.
        folder: target folder; days that it has already, with the same rows, are not written again.

    Raises:
        LakeError: a file cannot be read.
        LaterVersionError: a file is of a later version of the schema.
        OSError: the disk is full or broken.
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
    """Write each kind in a separate row group, so that readers of some kinds skip the others."""
    rows = pa.concat_tables(read).unify_dictionaries()
    for kind in pc.unique(rows["kind"]).to_pylist():
        of_kind = pc.is_null(rows["kind"]) if kind is None else pc.equal(rows["kind"], kind)
        writer.write(rows.filter(of_kind))
        writer.flush()

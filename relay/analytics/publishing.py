"""Publishing: results become visible to readers, all results of a period at once.

    1. Spark has written `results/<table>/_tmp-<run>/_period=<period>/*.parquet`.
    2. Each file is synced to the disk, and each period's folder is renamed to
       `results/<table>/<period>/<run>`. No reader uses it yet.
    3. In one transaction, the ledger gets the new folders of the period, for every table of the
       job, and the rows of those tables that are in the database are replaced.
    4. The former folder stays for a while, because a reader may be reading it; the next run
       removes it.

If the process is killed at any point, readers see the old results or the new ones. The folders it
leaves are removed by the next run of the job, which alone may change its tables (`ledger.claimed`).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from django.db import transaction
from django.utils import timezone

from relay.analytics import footers, origin, results
from relay.analytics.errors import AnalyticsError
from relay.analytics.lake import Lake
from relay.analytics.ledger import Period
from relay.analytics.models import Published, Run
from relay.analytics.places import DRAFT
from relay.analytics.segments import sync_folder
from relay.analytics.spark.catalogue import Job, Table

KEEP_S: Final = 3600
"""Seconds for which a replaced folder stays."""

PERIOD_COLUMN: Final = "_period"
"""Column by which Spark partitions its output; the files have the column `period` as well."""

ROWS_AT_ONCE: Final = 1000


def draft(lake: Lake, table: Table, run: Run) -> Path:
    """Return the folder into which Spark writes the results of a table."""
    return lake.results / table.name / f"{DRAFT}{run.name}"


def publish(job: Job, run: Run, computed: Sequence[Period], lake: Lake) -> None:
    """Make computed results visible to readers.

    Args:
        job: job whose tables are published; each has its draft.
        run: run that computed them; its numbers of periods and rows are updated.
        computed: the periods. A period without rows is published without files.

    Raises:
        AnalyticsError: the drafts have rows of other periods.
        OSError: the disk is full or broken. Periods published before stay published.
    """
    for table in job.tables:
        _refuse_others(draft(lake, table, run), computed)
    for period in computed:
        folders = {table: _settle(lake, table, run, period) for table in job.tables}
        _announce(run, period, folders, lake)
    for table in job.tables:
        shutil.rmtree(draft(lake, table, run), ignore_errors=True)


def sweep(job: Job, lake: Lake) -> None:
    """Remove what killed runs left, and folders that were replaced some time ago.

    The caller must hold `ledger.claimed`.
    """
    old = timezone.now() - timedelta(seconds=KEEP_S)
    for table in job.tables:
        shown = {row.period: row for row in Published.objects.filter(table=table.name)}
        for found in _folders(lake.results / table.name):
            if found.name.startswith(DRAFT):
                # A Java process whose driver was killed may still write for a second or two; the
                # next run removes what it leaves.
                shutil.rmtree(found, ignore_errors=True)
                continue
            row = shown.get(found.name)
            if row is not None and row.published_at > old:
                continue  # readers may still use the former one
            for folder in _folders(found):
                if row is None or row.folder != _below_results(lake, folder):
                    shutil.rmtree(folder)


def _refuse_others(drafts: Path, computed: Sequence[Period]) -> None:
    expected = {f"{PERIOD_COLUMN}={period.name}" for period in computed}
    found = {folder.name for folder in _folders(drafts)} if drafts.exists() else set()
    if found - expected:
        raise AnalyticsError(
            f"{drafts.parent.name} has rows of {min(found - expected)}, which was not asked for"
        )


def _settle(lake: Lake, table: Table, run: Run, period: Period) -> Path | None:
    """Sync the files of a period and move them to their folder; None if there are no rows."""
    drafted = draft(lake, table, run) / f"{PERIOD_COLUMN}={period.name}"
    if not drafted.exists():
        return None
    for path in drafted.iterdir():
        if path.name.startswith("."):  # checksums that only Hadoop reads
            path.unlink()
            continue
        with path.open("rb") as file:
            os.fsync(file.fileno())
    sync_folder(drafted)
    target = lake.results / table.name / period.name / run.name
    target.parent.mkdir(parents=True, exist_ok=True)
    drafted.rename(target)
    sync_folder(target.parent)
    sync_folder(target.parent.parent)
    return target


def _announce(run: Run, period: Period, folders: dict[Table, Path | None], lake: Lake) -> None:
    now, by_day = timezone.now(), footers.rows_by_day(period.files)
    with transaction.atomic():
        origin.assert_not_another(lake)  # another may have taken over since
        for table, folder in folders.items():
            rows, size = _measure(folder)
            Published.objects.update_or_create(
                table=table.name,
                period=period.name,
                defaults={
                    "run": run,
                    "fingerprint": period.fingerprint,
                    "folder": _below_results(lake, folder) if folder else "",
                    "result_rows": rows,
                    "size_bytes": size,
                    "event_rows": sum(by_day.values()),
                    "day_rows": by_day,
                    "published_at": now,
                },
            )
            run.result_rows += rows
            if table.in_database:
                _replace_rows(table, period.name, folder)
        run.periods += 1
        run.save(update_fields=["periods", "result_rows"])


def _replace_rows(table: Table, period: str, folder: Path | None) -> None:
    results.replace(table.name, period, _rows(folder) if folder else ())


def _rows(folder: Path) -> Iterator[list[dict[str, Any]]]:
    from pyarrow import parquet

    for path in sorted(folder.glob("*.parquet")):
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(ROWS_AT_ONCE):
                yield batch.to_pylist()


def _measure(folder: Path | None) -> tuple[int, int]:
    """Return the number of rows and bytes of a folder."""
    from pyarrow import parquet

    files = list(folder.glob("*.parquet")) if folder else []
    rows = sum(parquet.read_metadata(path).num_rows for path in files)
    return rows, sum(path.stat().st_size for path in files)


def _folders(parent: Path) -> list[Path]:
    return [path for path in parent.iterdir() if path.is_dir()] if parent.is_dir() else []


def _below_results(lake: Lake, folder: Path) -> str:
    return folder.relative_to(lake.results).as_posix()

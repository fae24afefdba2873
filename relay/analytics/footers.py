"""Footers of files of events: the number of rows, and the version of the schema.

Reading a footer takes a third of a millisecond. It finds a broken file, and names it, before a job
has worked for minutes.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from relay.analytics.errors import AnalyticsError
from relay.analytics.lake import LakeFile, is_broken

VERSION: Final = 2
"""Same as `relay.analytics.spark.schema.VERSION`, which is not imported because it imports Spark:
pages read the ledger too, and a run without work should end at once."""

VERSION_KEY: Final = b"rmb.schema"

_REMEMBERED: Final = 65_536


def rows(files: Iterable[LakeFile]) -> int:
    """Return the number of rows of all files together.

    Raises:
        AnalyticsError: a file is broken, or of a later version; the text names it.
    """
    return sum(_rows(file.path) for file in files)


def rows_by_day(files: Iterable[LakeFile]) -> dict[str, int]:
    """Return the number of rows for each day that has a file, by the day's name (YYYY-MM-DD).

    Raises:
        AnalyticsError: a file is broken, or of a later version; the text names it.
    """
    found: dict[str, int] = {}
    for file in files:
        day = file.date.isoformat()
        found[day] = found.get(day, 0) + _rows(file.path)
    return found


def assert_readable(path: Path) -> None:
    """Check one file.

    Raises:
        AnalyticsError: the file is broken, or of a later version; the text names it.
    """
    _rows(path)


@functools.lru_cache(_REMEMBERED)
def _rows(path: Path) -> int:
    from pyarrow import ArrowException, parquet

    try:
        footer = parquet.read_metadata(path)
    except FileNotFoundError:
        raise AnalyticsError(f"{path} was removed while it was to be read; try again") from None
    except (OSError, ArrowException) as error:
        said = f"{path} cannot be read ({str(error).partition(chr(10))[0]})"
        if is_broken(error):
            said += ": `manage.py rmb_analytics check --repair` takes it out of the way"
        raise AnalyticsError(said) from None
    told = (footer.metadata or {}).get(VERSION_KEY, b"1").decode(errors="replace")
    if not told.isdecimal() or int(told) > VERSION:
        raise AnalyticsError(
            f"{path} is of version {told} of the schema, and this release reads {VERSION}: "
            "upgrade before running jobs"
        )
    return int(footer.num_rows)

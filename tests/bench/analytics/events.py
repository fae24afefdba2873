"""The events the engines read."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path

from relay.analytics.generator import Options, generate
from relay.analytics.spark.window import Window

FIRST = date(2026, 9, 1)
DAYS = 30
WINDOW = Window(FIRST, date(2026, 9, 30))
TWINS = 200_000


@contextmanager
def made(rows: int, kept: Path | None = None) -> Iterator[Path]:
    """A folder of the lake with about so many rows: 30 days, 720 files.

    Args:
        rows: how many.
        kept: a folder of such lakes, by their number of rows, where it is made if it is not there,
            and stays; None: it goes afterwards.
    """
    if kept is not None:
        folder = kept / f"events-{rows}"
        if not (folder / "generated.json").exists():
            generate(folder, Options(FIRST, DAYS, rows, TWINS))
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="rmbb-") as name:
        generate(Path(name), Options(FIRST, DAYS, rows, TWINS))
        yield Path(name)

"""Synthetic events that both engines read."""

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
    """Generate a lake with about this many events, over 30 days and in 720 files; yield its folder.

    Args:
        rows: number of events.
        kept: folder of such lakes, by their number of rows: the lake is generated there if it is
            missing, and kept. None: the lake is deleted afterwards.
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

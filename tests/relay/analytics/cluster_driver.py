"""Runs `rollup` on a cluster; its executors tell of themselves, and wait to be killed.

    RMB_DATA__DIR=folder python -m tests.relay.analytics.cluster_driver LAKE MASTER GATE FIRST LAST

Tasks from HELD on write what they run in into the folder GATE, and go on when there is a file `go`.
Prints as JSON how many days it computed, and the files readers get of twin_hour.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import time
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

from relay.analytics.spark.catalogue import JOBS, Table

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

HELD = 2
"""Those before it are done by then: what they shuffled is lost with their executor."""

GATE = Path(sys.argv[3]) if len(sys.argv) > 3 else Path()


def held(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows as they are. Runs in executors, sent there with all it needs."""
    from pyspark import TaskContext

    import relay.analytics.spark

    task = TaskContext.get()
    if task is not None and task.partitionId() >= HELD:
        told = {
            "executor": _executor(),
            "package": relay.analytics.spark.__file__,
            "django": "django" in sys.modules,
        }
        draft = GATE / f"{os.getpid()}.draft"
        draft.write_text(json.dumps(told))
        draft.rename(draft.with_suffix(".json"))
        while not (GATE / "go").exists():
            time.sleep(0.02)
    yield from batches


def _executor() -> int:
    """The Java process above this one and the one that forks Python workers."""
    parent = os.getppid()
    return int(Path(f"/proc/{parent}/stat").read_text().rpartition(")")[2].split()[1])


@dataclasses.dataclass(frozen=True, slots=True)
class HeldTable(Table):
    """A table whose events pass the gate."""

    def load(self) -> SimpleNamespace:  # type: ignore[override]
        module = super(HeldTable, self).load()

        def transform(events: DataFrame, window: object) -> DataFrame:
            return module.transform(events.mapInArrow(held, events.schema), window)

        return SimpleNamespace(SCHEMA=module.SCHEMA, transform=transform)


def main() -> None:
    """See above."""
    import django

    django.setup()
    from django.apps import apps
    from django.db import connection

    from relay.analytics import ledger, runner
    from relay.analytics.engine import Engine
    from relay.analytics.lake import Lake
    from relay.analytics.progress import Progress
    from relay.analytics.spark.window import Window

    with connection.schema_editor() as editor:
        for model in apps.get_app_config("relay_analytics").get_models():
            editor.create_model(model)
    root, master, _, first, last = sys.argv[1:]
    lake = Lake(Path(root))
    twin_hour, *_ = JOBS["rollup"].tables
    fields = (getattr(twin_hour, field.name) for field in dataclasses.fields(twin_hour))
    job = dataclasses.replace(JOBS["rollup"], tables=(HeldTable(*fields),))
    engine = Engine(lake, master)
    window = Window(date.fromisoformat(first), date.fromisoformat(last))
    try:
        outcome = runner.run(job, window, lake, engine, Progress())
    finally:
        engine.close()
    files = [str(file) for file in ledger.result_files(lake, "twin_hour")]
    print(json.dumps({"computed": outcome.computed, "files": files}))


if __name__ == "__main__":
    main()

"""Run the job `rollup` on a cluster whose executors report themselves and wait to be killed.

    RMB_DATA__DIR=folder python -m tests.relay.analytics.cluster_driver LAKE MASTER GATE FIRST LAST

Each task from number HELD on writes facts about its process into the folder GATE and continues
when a file `go` appears there. The program prints as JSON the number of days that it computed, and
the files of twin_hour that readers get.
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
"""Number of the first task that waits.

Earlier tasks are done by then, so that their shuffle output is lost when their executor is killed.
"""

GATE = Path(sys.argv[3]) if len(sys.argv) > 3 else Path()


def held(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Return the rows unchanged, once the gate is open.

    This runs in executors; Spark sends it there with all that it needs.
    """
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
    """Return the id of the Java process that started the process that forks Python workers."""
    parent = os.getppid()
    return int(Path(f"/proc/{parent}/stat").read_text().rpartition(")")[2].split()[1])


@dataclasses.dataclass(frozen=True, slots=True)
class HeldTable(Table):
    """A table whose events pass through `held`."""

    def load(self) -> SimpleNamespace:  # type: ignore[override]
        module = super(HeldTable, self).load()

        def transform(events: DataFrame, window: object) -> DataFrame:
            return module.transform(events.mapInArrow(held, events.schema), window)

        return SimpleNamespace(SCHEMA=module.SCHEMA, transform=transform)


def main() -> None:
    """Run the job as the module's docstring describes."""
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

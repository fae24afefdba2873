"""Measurement of the running stream: the time from a file's arrival until its rows are counted."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from relay.analytics import arrow_schema
from relay.analytics.lake import Lake
from relay.analytics.spark import schema
from tests.bench.targets import ROOT, TargetError
from tests.support.relay_process import command_environment, migrated_folder

START_S = 180.0
WAIT_S = 60.0
POLL_S = 0.01
ROWS = 2_000
"""Rows of a file: as many as a relay with 2,000 events per second writes into one."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Live:
    """A lake, a database, and the stream that reads the one and counts in the other."""

    def __init__(self, folder: Path) -> None:
        self._database = folder / "data" / "relay.sqlite3"
        self._database.parent.mkdir(mode=0o700)
        shutil.copy(migrated_folder() / "relay.sqlite3", self._database)
        self.lake = Lake(folder / "lake")
        self._files = 0

    def put(self) -> int:
        """Add a file whose newest event happens now; return that time in microseconds."""
        self._files += 1
        now_us = time.time_ns() // 1_000
        moment = datetime.fromtimestamp(now_us / 1e6, UTC)
        folder = self.lake.hour(moment.date(), moment.hour)
        folder.mkdir(parents=True, exist_ok=True)
        draft = folder / f"_tmp-{self._files}"
        pq.write_table(_events(now_us), draft, **arrow_schema.WRITING)
        os.replace(draft, folder / f"bench-{self._files}.parquet")
        return now_us

    def counted(self, now_us: int) -> None:
        """Wait until the events of that time are counted in the database."""
        deadline = time.monotonic() + WAIT_S
        with closing(sqlite3.connect(f"file:{self._database}?mode=ro", uri=True)) as connection:
            while True:
                asked = "SELECT newest FROM relay_analytics_streamstate"
                found = connection.execute(asked).fetchone()
                if found and found[0] and _us(found[0]) >= now_us:
                    return
                if time.monotonic() > deadline:
                    raise TargetError("the stream does not count")
                time.sleep(POLL_S)

    def events(self) -> int:
        """Return the number of events counted."""
        with closing(sqlite3.connect(self._database)) as connection:
            asked = "SELECT coalesce(sum(n), 0) FROM relay_analytics_liveminute"
            return int(connection.execute(asked).fetchone()[0])


@contextmanager
def running(folder: Path) -> Iterator[Live]:
    """Run a stream; it has counted its first file when it is yielded."""
    live = Live(folder)
    settings = {
        "analytics.dir": str(live.lake.events.parent),
        "analytics.driver_memory": "1g",
        "analytics.master": "local[2]",
        "analytics.cores": "1",
        "redis.url": "redis://127.0.0.1:1",
    }
    with (folder / "said").open("wb") as said:
        process = subprocess.Popen(
            [sys.executable, str(ROOT / "manage.py"), "rmb_analytics", "stream"],
            cwd=folder,
            env=command_environment(folder, settings),
            stdout=said,
            stderr=said,
        )
        try:
            _await_start(live, process, folder / "said")
            yield live
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(WAIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _await_start(live: Live, process: subprocess.Popen[bytes], said: Path) -> None:
    first = live.put()
    deadline = time.monotonic() + START_S
    while True:
        try:
            live.counted(first)
            return
        except (TargetError, sqlite3.OperationalError):
            if process.poll() is not None or time.monotonic() > deadline:
                raise TargetError(said.read_text(errors="replace")[-2_000:]) from None


def _events(now_us: int) -> pa.Table:
    """Return the rows of the second before this time."""
    rng = np.random.default_rng(now_us)
    accepted = np.arange(ROWS) % 2 == 0
    kinds = pa.array(np.where(accepted, schema.ACCEPTED, schema.DELIVERED))
    columns = {
        "event_time": np.sort(now_us - rng.integers(0, 1_000_000, ROWS)),
        "relay": pa.array(["relay-1.example"] * ROWS),
        "kind": kinds,
        "src_twin": rng.integers(1, 1_000, ROWS),
        "dst_twin": rng.integers(1, 1_000, ROWS),
        "src_session": pa.array([""] * ROWS),
        "size_bytes": rng.integers(96, 4_096, ROWS),
        "latency_us": pa.array(rng.integers(100, 5_000, ROWS), mask=accepted),
        "reason": pa.array([schema.NONE] * ROWS),
        "remote": pa.nulls(ROWS, pa.string()),
        "uid": rng.integers(-(1 << 63), (1 << 63) - 1, ROWS),
        "protocol": pa.array([schema.RMB] * ROWS),
        "src_key": pa.nulls(ROWS, pa.string()),
        "dst_key": pa.nulls(ROWS, pa.string()),
        "link": pa.nulls(ROWS, pa.string()),
        "contract": pa.nulls(ROWS, pa.string()),
        "operation": pa.nulls(ROWS, pa.string()),
        "host_id": pa.nulls(ROWS, pa.string()),
        "answer_bytes": pa.nulls(ROWS, pa.int64()),
    }
    columns["event_time"][-1] = now_us
    arrays = [
        pa.array(columns[field.name]).cast(field.type)
        if not pa.types.is_dictionary(field.type)
        else columns[field.name].dictionary_encode()
        for field in arrow_schema.EVENTS
    ]
    return pa.Table.from_arrays(arrays, schema=arrow_schema.EVENTS)


def _us(text: str) -> int:
    moment = datetime.fromisoformat(text).replace(tzinfo=UTC)
    return round((moment - _EPOCH).total_seconds() * 1e6)

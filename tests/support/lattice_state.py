"""State that the processes of a lattice write to Redis, written by a test."""

from __future__ import annotations

import json
import time
from typing import Any

from proto.lattice import state
from proto.lattice.state import CallField, FindingRow, Seen, Total
from tests.support.redis_servers import RedisServer


def report(server: RedisServer, kind: str, name: str = "1", **values: Any) -> str:
    """Write a process's report about itself; by default it is connected to NATS."""
    process = f"{kind}-{name}"
    now = time.time()
    told = {"kind": kind, "pid": 4711, "started": now - 90, "nats": "connected", **values}
    pairs = [part for key, value in told.items() for part in (key, json.dumps(value))]
    server.run("HSET", state.process_key(process), *pairs)
    server.run("ZADD", state.PROCESSES, now, process)
    return process


def ended(server: RedisServer, process: str) -> None:
    """Remove the report of a process, as happens when it expires."""
    server.run("DEL", state.process_key(process))


def count(server: RedisServer, total: Total, *labels: str, by: int = 1) -> None:
    """Add to a total."""
    server.run("HINCRBY", state.TOTALS, state.total_field(total, *labels), by)


def find(server: RedisServer, reason: str, **fields: Any) -> None:
    """Write a finding, and count it."""
    row = FindingRow(reason, **{"at": time.time(), **fields})
    server.run("XADD", state.FINDINGS, "*", state.FINDING_FIELD, state.encode(row))
    count(server, Total.FOUND, reason, by=row.count)


def saw(server: RedisServer, what: Seen, *rows: Any) -> None:
    """Write rows about what the lattice runs."""
    for number, row in enumerate(rows):
        server.run("HSET", what, str(number), state.encode(row))


def called(server: RedisServer, *key: str, times: int = 1, took_ms: float = 3.0) -> None:
    """Write calls of this minute that all took the same time."""
    name = state.calls_key(int(time.time() // 60))
    for what, by in (("ok", times), ("ms", times * took_ms), ("<5", times)):
        server.run("HINCRBYFLOAT", name, CallField(*key, what).encode(), by)

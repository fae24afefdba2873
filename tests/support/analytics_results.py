"""Synthetic results of the analytics, published as jobs do."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from typing import Any

from django.utils import timezone

from relay.analytics.models import LiveMinute, Published, Run, RunState, StreamState
from relay.analytics.results import MODEL_OF, columns

KEY = "A" * 43
"""Key of an SBD client."""


def a_run(job: str, name: str = "", **facts: Any) -> Run:
    """Return a completed run, created if it does not exist."""
    began = timezone.now() - timedelta(minutes=2)
    facts = {"first_day": date(2026, 11, 1), "last_day": date(2026, 11, 3), **facts}
    found, _ = Run.objects.get_or_create(
        name=name or f"run-{job}",
        defaults={
            "job": job,
            "master": "local[2]",
            "state": RunState.DONE,
            "began_at": began,
            "ended_at": began + timedelta(seconds=90),
            **facts,
        },
    )
    return found


def publish(
    table: str,
    period: str,
    rows: Iterable[dict[str, Any]] = (),
    *,
    job: str = "job",
    folder: str = "",
) -> None:
    """Publish a period of a table with its rows."""
    made = (
        [MODEL_OF[table](**{"period": period, **row}) for row in rows] if table in MODEL_OF else []
    )
    if made:
        MODEL_OF[table]._default_manager.bulk_create(made)
    Published.objects.create(
        table=table,
        period=period,
        run=a_run(job),
        fingerprint="f",
        folder=folder,
        result_rows=len(made),
        size_bytes=100,
        event_rows=1000,
        published_at=timezone.now(),
    )


def hour(day: int, number: int = 0) -> datetime:
    """Return an hour of a day of November 2026."""
    return datetime(2026, 11, day, number, tzinfo=UTC)


def fill() -> None:
    """Publish rows of every table in the database, for a day and its month."""
    day, at = "2026-11-03", {"hour": hour(3, 7)}
    for table, job, row in (
        ("relay_pair_hour", "rollup", at | _PAIR),
        ("protocol_hour", "rollup", _counts("protocol_hour") | at | _SBD),
        ("traffic_matrix", "matrix", _FLOW),
        ("storms", "sessions", {"twin": 7, "session": "", "first_us": 1, "last_us": 2, "opens": 5}),
        ("concurrency", "sessions", at | {"relay": "a.example", "peak": 40}),
        ("federation_slo", "federation", at | _SLO),
        ("federation_rank", "federation", _RANK),
        ("anomalies", "anomalies", at | {"twin": 7, "accepted": 500, "median": 20, "deviation": 2}),
        ("top_twins", "top", {"twin": 7} | _BUSY),
        ("hot_pairs", "top", {"src_twin": 7, "dst_twin": 9} | _BUSY),
        ("top_keys", "top", {"key": KEY} | _BUSY),
        ("audit", "audit", _counts("audit") | {"relay": "a.example", "uids": 5}),
        ("lattice_calls", "lattice", _counts("lattice_calls") | at | _INVOKED),
        ("lattice_slow", "lattice", _counts("lattice_slow") | _OPERATION | _SLOW),
        ("lattice_forged", "lattice", _counts("lattice_forged") | _FORGED),
    ):
        publish(table, day, [row], job=job)
    facts = {"size_bytes": 900, "latency_us": 5000, "late": 0}
    LiveMinute.objects.create(
        minute=hour(3, 7), relay="a.example", kind="delivered", reason="none", n=9, **facts
    )
    StreamState.objects.create(
        checkpoint="x", since=hour(3), counts_from=hour(3), newest=hour(3, 7), began_at=hour(3),
        updated_at=timezone.now(),
    )  # fmt: skip
    publish("usage", "2026-11", [_counts("usage") | {"twin": 7}], job="usage")


_OPERATION = {"kind": "lattice_out", "link": "default", "operation": "Kv.Get", "calls": 40}
_INVOKED = {**_OPERATION, "contract": "a:kv"}
_SLOW = {"target": "V" * 56, "reason": "timed_out", "failed": 3, "place": 1, "p95_us": 2_000_000}
_FORGED = {"origin": "M" * 56, "host_id": "N" * 56, "reason": "replay", "invocations": 7}
_FLOW = {"origin": "a.example", "final": "b.example", "messages": 1000, "bytes": 4096}
_PAIR = {"relay": "a.example", "remote": "b.example", "attempts": 1000, "bytes": 4096, "failed": 0}
_SBD = {"relay": "a.example", "protocol": "sbd", "accepted": 30}
_SLO = {"remote": "b.example", "attempts": 100, "ok": 90, "permille": 900, "p95_us": 250_000}
_RANK = {"place": 1, "remote": "b.example", "failures": 10, "score": 10}
_BUSY = {"place": 1, "messages": 10, "bytes": 1000, "share_ppm": 250_000}


def _counts(table: str) -> dict[str, Any]:
    return {name: 0 for name in columns(table) if name not in ("period", "relay", "twin")}

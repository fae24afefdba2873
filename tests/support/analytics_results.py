"""Results of the analytics as jobs publish them, made up row by row."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from typing import Any

from django.utils import timezone

from relay.analytics.models import Published, Run, RunState
from relay.analytics.results import MODEL_OF


def a_run(job: str, name: str = "", **facts: Any) -> Run:
    """A run that is done."""
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
    """A period of a table with its rows."""
    made = [MODEL_OF[table](period=period, **row) for row in rows] if table in MODEL_OF else []
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
    """An hour of a day of November 2026."""
    return datetime(2026, 11, day, number, tzinfo=UTC)

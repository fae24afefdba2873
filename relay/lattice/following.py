"""Writes findings of the monitor to the audit log: one entry per reason and origin in five minutes.

    stream in Redis -> counts in one row, with the position -> entries at the end of the window

The position in the stream and the counts up to it are written in one transaction: however a reader
ends, each finding is counted once. Findings that the stream drops before they are read are not
counted at all.
"""

from __future__ import annotations

import json
import time
from typing import Any, Final

from django.db import transaction

from proto.lattice import state
from proto.lattice.state import FindingRow
from relay.access.actor import SYSTEM
from relay.audit import services as audit
from relay.lattice import figures
from relay.lattice.models import FindingsRead
from relay.lattice.tabs import at
from relay.ops.redis_client import client, text

ACTION: Final = "lattice.finding"
WINDOW_S: Final = 300.0
MAX_ORIGINS: Final = 20
"""Maximum number of pairs of reason and origin in one window; further ones are merged into one for
each reason, because a sender can claim any origin."""
OTHERS: Final = "(others)"
BATCH: Final = 1_000
_SAMPLE: Final = (
    *("text", "target", "operation", "host_id", "issuer", "id", "subject", "size"),
)  # fmt: skip


def follow(now: float | None = None) -> int:
    """Read to the end of the stream, and write entries for windows that are over.

    Args:
        now: current time, in seconds since 1970; None: that of the clock.

    Returns:
        The number of entries that were written.

    Raises:
        redis.exceptions.RedisError: Redis does not answer.
        django.db.Error, relay.access.errors.Away: the database does not answer.
    """
    moment = time.time() if now is None else now
    FindingsRead.objects.get_or_create(pk=FindingsRead.ONLY)
    written, more = 0, True
    while more:
        entries, more = _step(moment)
        written += entries
    return written


def _step(now: float) -> tuple[int, bool]:
    """Read a batch; return the number of written entries, and whether there may be more to read."""
    seen = FindingsRead.objects.get(pk=FindingsRead.ONLY)
    entries: Any = client().xrange(state.FINDINGS, min=f"({seen.position}", count=BATCH)
    end = text(entries[-1][0]) if entries else _end_before(seen.position)
    if end == seen.position and not _is_over(seen, now):
        return 0, False
    with transaction.atomic():
        row = FindingsRead.objects.select_for_update().get(pk=FindingsRead.ONLY)
        if row.position != seen.position:
            return 0, False  # another reader was faster
        written = 0
        if _is_over(row, now):
            written = _write(row.waiting)
            row.waiting = {}
        found = figures.decode_findings(entries)
        if found and not row.waiting:
            row.began = now
        for _, finding in found:
            _count(row.waiting, finding)
        row.position = end
        row.save()
    return written, len(entries) == BATCH


def _is_over(row: FindingsRead, now: float) -> bool:
    return bool(row.waiting) and not 0 <= now - row.began < WINDOW_S


def _end_before(position: str) -> str:
    """Return the position to continue from.

    It is the old position, or the end of the stream if that is before it because Redis lost data.
    """
    last: Any = client().xrevrange(state.FINDINGS, count=1)
    end = text(last[0][0]) if last else position
    return min(end, position, key=_order)


def _order(position: str) -> tuple[int, ...]:
    return tuple(map(int, position.split("-")))


def _count(waiting: dict[str, Any], finding: FindingRow) -> None:
    origin = OTHERS if finding.count > 1 else finding.origin or finding.subject
    key = json.dumps([finding.reason, origin])
    if key not in waiting and len(waiting) >= MAX_ORIGINS:
        key = json.dumps([finding.reason, OTHERS])
    if key not in waiting:
        sample = {name: getattr(finding, name) for name in _SAMPLE}
        waiting[key] = {"count": 0, "first": finding.at, "last": finding.at, "sample": sample}
    counted = waiting[key]
    counted["count"] += finding.count
    counted["first"] = min(counted["first"], finding.at)
    counted["last"] = max(counted["last"], finding.at)


def _write(waiting: dict[str, Any]) -> int:
    for key, counted in waiting.items():
        reason, origin = json.loads(key)
        after = {
            "reason": reason,
            "count": counted["count"],
            "first": at(counted["first"]),
            "last": at(counted["last"]),
            "sample": counted["sample"],
        }
        audit.record(SYSTEM, ACTION, target=origin, after=after)
    return len(waiting)

"""Readings of the relay workers: their heartbeats, and the growth of their counters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from proto.rmb.reasons import MessageReason
from proto.sbd.errors import DropReason
from relay.alarms import rates
from relay.alarms.readings.look import Look, Reading, Readings, newest, place
from relay.ops.metric_names import series
from relay.ops.workers import LATE_S, WorkerState
from relay.sbd.options import AuthReason, EndReason
from relay.sessions.counters import COMMIT_BOUNDS_S

RESTARTS_S: Final = 900.0
"""Seconds for which restarts count."""
MISSED_S: Final = 3600.0
"""Seconds for which a worker without heartbeats is reported."""
FOUND_S: Final = 600.0
STORM_S: Final = 60.0
WENT_BACK_S: Final = 900.0

LATENCY_S: Final = 60.0
SNAPSHOT_S: Final = 15.0
MAX_MEASURED: Final = 256
"""Most workers whose latency is measured."""
LEAST_BATCHES: Final = 20
"""Fewest commits within a minute from which the slowest twentieth is computed."""
QUANTILE: Final = 0.95

_LIMITED: Final = tuple(
    series("relay_messages_total", reason=reason)
    for reason in (MessageReason.LIMIT_COUNT, MessageReason.LIMIT_SIZE)
)
_SBD_FAILURES: Final[dict[str, str]] = {
    DropReason.BAD_SIGNATURE: f"sbd_ended_{DropReason.BAD_SIGNATURE}_total",
    **{
        reason: f"sbd_auth_failures_{reason}_total"
        for reason in (
            *(AuthReason.NO_TOKEN, AuthReason.BAD_TOKEN),
            *(AuthReason.REFUSED, AuthReason.HOOK_FAILED),
        )
    },
}
"""Counters of failed sign-ins by reason."""
_SLOW_READERS: Final = f"sbd_ended_{EndReason.SLOW_READER}_total"
_BUCKETS: Final = tuple(
    series("relay_commit_seconds_bucket", le=str(bound)) for bound in (*COMMIT_BOUNDS_S, "+Inf")
)


def lives(look: Look) -> Readings:
    """Read workers that send no heartbeats, and those that died and were replaced.

    A worker that stops cleanly removes its heartbeat. If a heartbeat is found beside that of a
    newer worker in the same place, the older worker died. A worker whose heartbeat was late before
    it disappeared is still missing.
    """
    now = look.now
    there = newest(look.workers)
    known: dict[str, float] = look.memory.get("known", {})
    counted: dict[str, float] = {
        boot: at for boot, at in look.memory.get("counted", {}).items() if 0 <= now - at < 120
    }
    restarts: list[list[Any]] = [
        each for each in look.memory.get("restarts", []) if 0 <= now - each[0] < RESTARTS_S
    ]
    for worker in look.workers:
        if worker is not there[place(worker)] and worker.boot_id not in counted:
            counted[worker.boot_id] = now
            restarts.append([now, place(worker)])
    beats = {at: worker.heartbeat for at, worker in there.items()}
    seen_at = look.memory.get("at", now)
    for at, beat in known.items():
        if at not in beats and seen_at - beat > LATE_S and now - beat < MISSED_S:
            beats[at] = beat
    look.memory.update(known=beats, counted=counted, restarts=restarts[-rates.MAX_STEPS :], at=now)
    silent = {
        at: Reading(
            None if look.disk_full else round(max(0.0, now - beat), 1),
            look.disk_full or _described(there.get(at)),
        )
        for at, beat in beats.items()
    }
    died: dict[str, int] = {}
    for _, at in restarts:
        died[at] = died.get(at, 0) + 1
    return {
        "worker_silent": silent,
        "worker_restarts": {
            at: Reading(float(count), _described(there.get(at))) for at, count in died.items()
        },
    }


def load(look: Look) -> Readings:
    """Read the lag of the event loops."""
    return {
        "loop_lag": {
            at: Reading(worker.loop_lag_ms, _described(worker))
            for at, worker in newest(look.workers).items()
        }
    }


def storm(look: Look) -> Readings:
    """Read the number of messages refused over limits, summed over all workers."""
    value = _all_grown(look, "refused", look.workers, *_LIMITED)
    return {"limit_storm": {"": Reading(value, f"{value:.0f} messages refused within a minute")}}


def sbd(look: Look) -> Readings:
    """Read SBD clients that failed to sign in, and those dropped because they did not read."""
    serving = [worker for worker in look.workers if "sbd_connections" in worker.metrics]
    counts = {
        reason: _all_grown(look, reason, serving, metric)
        for reason, metric in _SBD_FAILURES.items()
    }
    failed = sum(counts.values())
    reasons = [f"{reason} {count:.0f}" for reason, count in counts.items() if count]
    slow = _all_grown(look, "slow", serving, _SLOW_READERS)
    if not serving:
        return {}
    told = f": {', '.join(reasons)}" if reasons else ""
    return {
        "sbd_auth_failures": {"": Reading(failed, f"{failed:.0f} within a minute{told}")},
        "sbd_slow_readers": {"": Reading(slow, f"{slow:.0f} clients dropped within a minute")},
    }


def finds(look: Look) -> Readings:
    """Read what the periodic checks found, and whether Redis restarted or lost data."""
    found = _grown(look, "found", "relay_check_found_total", FOUND_S)
    lost = _grown(look, "lost", "relay_redis_went_back_total", WENT_BACK_S)
    restarted = _grown(look, "restarted", "relay_redis_restarts_total", WENT_BACK_S)
    times, losers = sum(lost.values()), sum(map(bool, lost.values()))
    seen_by = sum(map(bool, restarted.values()))
    outcome = f"it was missing for {losers}" if losers else "nothing is missing"
    return {
        "check_found": {
            at: Reading(value, f"{value:.0f} messages within 10 minutes")
            for at, value in found.items()
        },
        "redis_went_back": {
            "": Reading(times, f"within 15 minutes; {losers} workers lack what was confirmed")
        },
        "redis_restarted": {
            "": Reading(
                max(restarted.values(), default=0.0),
                f"within 15 minutes; {seen_by} workers compared their last confirmed batch with "
                f"what Redis holds: {outcome}",
            )
        },
    }


def commits(look: Look) -> Readings:
    """Read the time that the slowest twentieth of the last minute's commits exceeded."""
    former: dict[str, list[Any]] = look.memory.get("snapshots", {})
    snapshots: dict[str, list[Any]] = {}
    readings: dict[str, Reading] = {}
    for at, worker in list(newest(look.workers).items())[:MAX_MEASURED]:
        counts = [worker.metrics.get(name, 0.0) for name in _BUCKETS]
        kept = [
            each for each in former.get(worker.boot_id, []) if 0 <= look.now - each[0] <= LATENCY_S
        ]
        oldest = kept[0][1] if kept else counts
        batches = [new - old for new, old in zip(counts, oldest, strict=True)]
        slow_s = quantile(batches) if batches[-1] >= LEAST_BATCHES else 0.0
        detail = f"{QUANTILE:.0%} of {batches[-1]:.0f} commits within a minute were faster"
        readings[at] = Reading(round(1000 * slow_s, 1), detail)
        if not kept or look.now - kept[-1][0] >= SNAPSHOT_S:
            kept.append([look.now, counts])
        snapshots[worker.boot_id] = kept
    look.memory["snapshots"] = snapshots
    return {"commit_latency": readings}


def quantile(below: Sequence[float], part: float = QUANTILE) -> float:
    """Return the seconds within which the share `part` of the commits ended.

    Args:
        below: number of commits within each bound of the histogram; the last counts all of them.
        part: share of all commits.
    """
    wanted = part * below[-1]
    before, lower_s = 0.0, 0.0
    for count, bound_s in zip(below, COMMIT_BOUNDS_S, strict=False):
        if count >= wanted > 0:
            share = (wanted - before) / (count - before) if count > before else 1.0
            return lower_s + (bound_s - lower_s) * share
        before, lower_s = count, bound_s
    return lower_s if wanted > 0 else 0.0


def _grown(look: Look, name: str, metric: str, window_s: float) -> Mapping[str, float]:
    """Return by place how much a counter grew, including workers that have ended."""
    totals = {
        f"{place(worker)} {worker.boot_id}": worker.metrics.get(metric, 0.0)
        for worker in look.workers
    }
    look.memory[name], grown = rates.look(look.memory.get(name, {}), totals, look.now, window_s)
    by_place: dict[str, float] = {}
    for source, value in grown.items():
        at = source.rpartition(" ")[0]
        by_place[at] = by_place.get(at, 0.0) + value
    return by_place


def _all_grown(look: Look, name: str, workers: Iterable[WorkerState], *metrics: str) -> float:
    """Return how much counters grew within a minute, summed over all workers."""
    totals = {
        worker.boot_id: sum(worker.metrics.get(metric, 0.0) for metric in metrics)
        for worker in workers
    }
    look.memory[name], grown = rates.look(look.memory.get(name, {}), totals, look.now, STORM_S)
    return sum(grown.values())


def _described(worker: WorkerState | None) -> str:
    if worker is None:
        return "it is gone, and no other has taken its place"
    return f"pid {worker.pid} on {worker.host}, {worker.all_sessions} sessions, {worker.state}"

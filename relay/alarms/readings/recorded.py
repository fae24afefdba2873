"""Events for analytics: those that were lost, and those that do not reach the lake.

Each machine has a lake of its own. The machine that evaluates inspects its own folder, so that it
notices if its compactor has ended; of other machines it knows what their compactors report.
"""

from __future__ import annotations

from typing import Final

from relay.alarms import rates
from relay.alarms.readings.look import Look, Reading, Readings, place
from relay.analytics import lag, places
from relay.analytics.lag import Lag
from relay.federation import counters
from relay.ops.metric_names import series
from relay.ops.redis_client import number
from relay.ops.wording import duration
from relay.queues import keys

PRESSURE: Final = "pressure"
DISK: Final = "disk"
_WHY: Final = {PRESSURE: "the disk did not keep up", DISK: "the disk refused"}
DRAINERS: Final = "deliveries to other relays"


def events(look: Look) -> Readings:
    """Read the events lost within some minutes, by reason, and those that wait, by machine."""
    recording = look.config.analytics.record
    here = lag.look(places.configured(), look.now)
    found = lag.read(look.redis) if recording else {}
    found |= {lag.host(): here} if recording or here.segments else {}
    waiting = {
        host: _waiting(each, look.now) for host, each in found.items() if not each.gone(look.now)
    }
    if not recording:
        return {"events_waiting": waiting}
    # No heartbeat contains events that a worker loses as it ends, but gaps do. Losses of drainers
    # are in both.
    gaps = sum(each.lost for each in found.values() if not each.silent_s(look.now))
    return {
        "events_waiting": waiting,
        "events_lost": {PRESSURE: _lost(look, PRESSURE), DISK: _lost(look, DISK, gaps)},
    }


def _waiting(found: Lag, now: float) -> Reading:
    silent_s = found.silent_s(now)
    if silent_s:
        return Reading(round(silent_s, 1), f"no compactor was seen for {duration(silent_s)}")
    detail = f"{found.segments:,} segments wait, {found.size_bytes:,} bytes"
    return Reading(round(found.age_s, 1), detail if found.segments else "nothing waits")


def _lost(look: Look, reason: str, in_gaps: int = 0) -> Reading:
    name = series("relay_analytics_lost_total", reason=reason)
    totals = {
        f"{place(worker)} {worker.boot_id}": worker.metrics.get(name, 0.0)
        for worker in look.workers
    }
    field = counters.field(counters.EVENTS, name)
    totals[DRAINERS] = number(look.redis.hget(keys.FEDERATION_COUNTERS, field))
    look.memory[reason], grown = rates.look(
        look.memory.get(reason, {}), totals, look.now, lag.LOST_S
    )
    value = max(sum(grown.values()), in_gaps)
    most = max(grown, key=lambda source: grown[source])
    by = ""
    if grown[most]:
        by = f", most by {most if most == DRAINERS else 'worker ' + most.rpartition(' ')[0]}"
    return Reading(value, f"{value:,.0f} events within 10 minutes{by}: {_WHY[reason]}")

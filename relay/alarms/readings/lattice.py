"""Readings of the lattice: what its monitor finds and misses, and whether its processes run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from proto.lattice.errors import UNKNOWN
from proto.lattice.state import FindingRow, ProcessKind, Total
from relay.alarms import rates
from relay.alarms.readings.look import Look, Reading, Readings
from relay.lattice import figures
from relay.lattice.figures import Process, Totals

FOUND_S: Final = 600.0
"""Seconds for which findings count."""
UNKNOWN_S: Final = 60.0
"""Seconds for which findings with a reason in `UNKNOWN` count; they end by themselves once the
monitor knows what has just started."""
UNLOOKED_S: Final = 60.0
READ: Final = 500
"""Most findings that are searched for origins, the newest first."""
SHOWN_ORIGINS: Final = 2
SHOWN_CHARS: Final = 90
"""Characters shown of a URL: its beginning, with the whole key of an actor."""


def lattice(look: Look) -> Readings:
    """Read findings by reason, unchecked messages, and missing or disconnected processes."""
    alive = figures.processes(look.redis)
    if not look.config.lattice.enabled and not alive:
        return {}
    totals = figures.totals(look.redis)
    return {
        **_found(look, totals),
        **_unlooked(look, totals),
        "lattice_missing": _missing(look, alive),
        "lattice_nats_lost": _cut_off(alive),
    }


def _found(look: Look, totals: Totals) -> Readings:
    counts = totals.by_label(Total.FOUND)
    readings: Readings = {}
    for rule, window_s, of_rule in (
        ("lattice_forged", FOUND_S, counts.keys() - UNKNOWN),
        ("lattice_unknown", UNKNOWN_S, counts.keys() & UNKNOWN),
    ):
        look.memory[rule], grown = rates.look(
            look.memory.get(rule, {}),
            {reason: counts[reason] for reason in of_rule},
            look.now,
            window_s,
        )
        rows = []
        if any(grown.values()):
            rows = [row for _, row in figures.findings(look.redis, READ)]
        readings[rule] = {
            reason: Reading(count, _told(count, window_s, reason, rows, look.now - window_s))
            for reason, count in grown.items()
        }
    return readings


def _told(
    count: float, window_s: float, reason: str, rows: Iterable[FindingRow], since: float
) -> str:
    """Return the number of findings, their claimed origins, and the newest one."""
    told = f"{count:,.0f} within {window_s / 60:.0f} min"
    found = [row for row in rows if row.reason == reason and row.at >= since and row.target]
    if not found:
        return told
    origins = Counter(row.origin[:SHOWN_CHARS] for row in found)
    of = ", ".join(f"{name} ({n:,})" for name, n in origins.most_common(SHOWN_ORIGINS))
    more = len(origins) - SHOWN_ORIGINS
    newest = max(found, key=lambda row: row.at)
    return (
        f"{told}; claimed origin: {of}{f' and {more:,} others' if more > 0 else ''}; last: "
        f"{newest.text}: {newest.operation} of {newest.target[:SHOWN_CHARS]}, host "
        f"{newest.host_id}"
    )


def _unlooked(look: Look, totals: Totals) -> Readings:
    look.memory["unlooked"], grown = rates.look(
        look.memory.get("unlooked", {}), totals.by_label(Total.UNJUDGED), look.now, UNLOOKED_S
    )
    value = sum(grown.values())
    detail = f"{value:,.0f} invocations within a minute were not checked"
    return {"lattice_unlooked": {"": Reading(value, detail)}}


def _missing(look: Look, alive: Iterable[Process]) -> dict[str, Reading]:
    config = look.config.lattice
    wanted = [ProcessKind.BRIDGE] if config.enabled else []
    if wanted and config.monitor:
        wanted.append(ProcessKind.MONITOR)
    there = {each.kind for each in alive}
    return {
        kind: Reading(float(kind not in there), "" if kind in there else f"no {kind} reports")
        for kind in wanted
    }


def _cut_off(alive: Iterable[Process]) -> dict[str, Reading]:
    found: dict[str, list[Process]] = {}
    for each in alive:
        found.setdefault(each.kind, []).append(each)
    return {kind: _connections(kind, each) for kind, each in found.items()}


def _connections(kind: str, all_of_it: list[Process]) -> Reading:
    lost = [each for each in all_of_it if not each.connected]
    why = next((str(each.values["error"]) for each in lost if each.values.get("error")), "")
    detail = f"{len(lost)} of {len(all_of_it)} without NATS{f': {why}' if why else ''}"
    return Reading(float(len(lost)), detail if lost else f"every {kind} is connected")

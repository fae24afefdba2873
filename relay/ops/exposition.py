"""The figures of all workers as one Prometheus text (format 0.0.4).

Every series of a worker gets the labels `worker` (the slot: stable over restarts, unlike the boot
id) and `host`. If one slot has two heartbeats, of a dead worker and of its successor, the newer
counts. Figures that workers share, such as the outbox of federation, do not have these labels.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from relay.ops.metric_names import BY_NAME, escape, family, series
from relay.ops.workers import WorkerState

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# Names that a worker may give a series; any other would invalidate the whole text.
SERIES = re.compile(
    r'(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(?P<labels>(?:[a-zA-Z_]\w*="(?:[^"\\\n]|\\.)*",?)+)\})?'
)


def render(workers: Iterable[WorkerState], *shared: Mapping[str, float]) -> str:
    """Return the text.

    Args:
        workers: Workers as `relay.ops.workers.list_workers` returns them.
        shared: Series that belong to no worker, and their values.
    """
    families: dict[str, list[str]] = {}
    for worker in _newest(workers):
        labels = [f'worker="{escape(worker.slot)}"', f'host="{escape(worker.host)}"']
        _add(families, {**_own_figures(worker), **worker.metrics}, labels)
    for figures in shared:
        _add(families, figures, [])
    return "".join(_lines(name, families[name]) for name in _declared_first(families))


def _add(
    families: dict[str, list[str]], figures: Mapping[str, float], more_labels: list[str]
) -> None:
    for name, value in figures.items():
        found = SERIES.fullmatch(name)
        if found is None:
            continue
        labels = [*more_labels, *([found["labels"].rstrip(",")] if found["labels"] else [])]
        inside = f"{{{','.join(labels)}}}" if labels else ""
        line = f"{found['name']}{inside} {_value(value)}"
        families.setdefault(family(found["name"]), []).append(line)


def _newest(workers: Iterable[WorkerState]) -> list[WorkerState]:
    by_place: dict[tuple[str, str], WorkerState] = {}
    for worker in workers:
        place = (worker.host, worker.slot)
        if place not in by_place or by_place[place].started <= worker.started:
            by_place[place] = worker
    return list(by_place.values())


def _own_figures(worker: WorkerState) -> dict[str, float]:
    """Return the figures of the heartbeat itself, which the worker's own figures override."""
    figures = {
        "relay_worker_connections": float(worker.sessions),
        "relay_worker_loop_lag_seconds": worker.loop_lag_ms / 1000,
        "relay_worker_started_timestamp_seconds": worker.started,
    }
    if worker.state:
        figures[series("relay_worker_state", state=worker.state)] = 1.0
    return figures


def _declared_first(families: dict[str, list[str]]) -> list[str]:
    declared = [name for name in BY_NAME if name in families]
    return declared + sorted(set(families) - set(declared))


def _lines(name: str, lines: list[str]) -> str:
    metric = BY_NAME.get(name)
    if metric is None:
        return f"# TYPE {name} untyped\n" + "".join(f"{line}\n" for line in lines)
    head = f"# HELP {name} {metric.help}\n# TYPE {name} {metric.kind}\n"
    return head + "".join(f"{line}\n" for line in lines)


def _value(value: float) -> str:
    value = float(value)
    return str(int(value)) if value.is_integer() else repr(value)

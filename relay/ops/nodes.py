"""The machines of a relay as operators see them: the last report of each supervisor."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from redis.exceptions import RedisError

from relay.access.errors import Away
from relay.ops.metric_names import series
from relay.ops.redis_client import client, text
from relay.queues import keys

SILENT_S: Final = 60.0
"""Seconds without a report after which a supervisor, and its last document, is ignored."""


@dataclass(frozen=True, slots=True)
class Process:
    """One process; values that its system does not provide are None.

    Attributes:
        rss_bytes: Memory in use, including memory shared with others.
        uss_bytes: Memory that only this process uses; None also above 1 GiB.
        cpu: Cores in use since the previous report; 1 is one whole core.
        files: Number of open files and sockets.
    """

    name: str
    pid: int
    rss_bytes: int | None = None
    uss_bytes: int | None = None
    cpu: float | None = None
    files: int | None = None
    files_limit: int | None = None


@dataclass(frozen=True, slots=True)
class Disk:
    """Size of one part of the data, and its disk.

    Attributes:
        partial: Whether there are more files than were counted: `used_bytes` is a lower bound.
    """

    use: str
    path: str
    used_bytes: int
    partial: bool = False
    free_bytes: int | None = None
    size_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Node:
    """One relay on one machine.

    Attributes:
        pid: Process id of its supervisor.
        at: Unix time of the report.
        load: Average load over 1, 5 and 15 minutes.
        memory_bytes: Memory of the machine, or the limit of its container.
    """

    host: str
    pid: int
    at: float
    cores: int
    load: tuple[float, float, float]
    memory_bytes: int
    memory_free_bytes: int | None
    processes: tuple[Process, ...]
    disks: tuple[Disk, ...]

    @property
    def name(self) -> str:
        return f"{self.host} {self.pid}"


def list_nodes() -> list[Node]:
    """Return all machines whose supervisor reported within the last minute, by name.

    Raises:
        Away: Redis does not answer.
    """
    try:
        return read(client().hgetall(keys.NODES))
    except RedisError as error:
        raise Away(f"Redis does not answer: {error}") from error


def read(stored: Mapping[Any, Any]) -> list[Node]:
    """Return the nodes in the hash. A document of another release that does not fit is skipped."""
    oldest, found = time.time() - SILENT_S, []
    for document in stored.values():
        try:
            node = _node(json.loads(text(document)))
        except (ValueError, TypeError, KeyError):
            continue
        if node.at >= oldest:
            found.append(node)
    return sorted(found, key=lambda node: (node.host, node.pid))


def figures(nodes: Iterable[Node]) -> dict[str, float]:
    """Return the nodes' figures for the metrics."""
    found: dict[str, float] = {}
    for node in nodes:
        for process in node.processes:
            labels = {"host": node.host, "process": process.name, "pid": str(process.pid)}
            for name, value in (
                ("relay_process_memory_bytes", process.rss_bytes),
                ("relay_process_private_bytes", process.uss_bytes),
                ("relay_process_cpu_cores", process.cpu),
                ("relay_process_open_files", process.files),
            ):
                if value is not None:
                    found[series(name, **labels)] = value
        for disk in node.disks:
            labels = {"host": node.host, "use": disk.use}
            found[series("relay_disk_used_bytes", **labels)] = disk.used_bytes
            if disk.free_bytes is not None:
                found[series("relay_disk_free_bytes", **labels)] = disk.free_bytes
    return found


def _node(told: dict[str, Any]) -> Node:
    one, five, fifteen = map(float, told["load"])
    free = told["memory_free_bytes"]
    return Node(
        host=str(told["host"]),
        pid=int(told["pid"]),
        at=float(told["at"]),
        cores=int(told["cores"]),
        load=(one, five, fifteen),
        memory_bytes=int(told["memory_bytes"]),
        memory_free_bytes=None if free is None else int(free),
        processes=tuple(Process(**each) for each in told["processes"]),
        disks=tuple(Disk(**each) for each in told["disks"]),
    )

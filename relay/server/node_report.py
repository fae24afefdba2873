"""What a relay uses of its machine: a report in Redis, which the site shows as *Nodes*.

Every `INTERVAL_S` the supervisor checks its processes in `/proc`, the machine, and the disk that
holds the data folder, and writes one JSON document into the hash `relay:nodes`. It does so in a
thread of its own process; workers are not involved. `relay.ops.nodes` reads it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import shutil
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import hiredis

from redispipe.errors import LinkLost
from redispipe.pipe import RedisPipe
from relay.queues import keys
from relay.server.memory import machine_bytes

INTERVAL_S: Final = 10.0
DISK_INTERVAL_S: Final = 60.0
"""Seconds between two walks through the data folder."""
MAX_PROCESSES: Final = 200
MAX_FILES: Final = 20_000
"""Maximum number of files checked in one walk through a folder; the sum reported for a larger
folder is a lower bound."""
MAX_USS_BYTES: Final = 1 << 30
"""Size of a process above which its private memory is not measured: the kernel reads every page."""
PROC: Final = Path("/proc")
PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")

log = logging.getLogger("relay.supervisor")


class NodeReport:
    """Report about one relay on one machine; `look` is called from time to time."""

    def __init__(self, kept: Callable[[], Mapping[int, str]], folders: Mapping[str, Path]) -> None:
        """Prepare to report.

        Args:
            kept: Returns the names of the supervisor's current children, by process id.
            folders: Paths of the relay's data, by their use.
        """
        self._kept = kept
        self._folders = folders
        self._ticks: dict[int, tuple[float, int]] = {}  # pid -> when, and its CPU ticks
        self._disks: list[dict[str, Any]] = []
        self._disks_at = float("-inf")

    def look(self) -> dict[str, Any]:
        """Return the current report; what this system does not provide is null."""
        now = time.monotonic()
        processes = [self._process(pid, name, now) for pid, name in self._named()]
        self._ticks = {pid: told for pid, told in self._ticks.items() if told[0] == now}
        if now - self._disks_at >= DISK_INTERVAL_S:
            self._disks_at = now
            self._disks = [disk(use, path) for use, path in self._folders.items()]
        return {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "at": time.time(),
            "cores": os.cpu_count() or 1,
            "load": list(os.getloadavg()),
            "memory_bytes": machine_bytes(),
            "memory_free_bytes": _available_bytes(),
            "processes": [each for each in processes if each is not None],
            "disks": self._disks,
        }

    def _named(self) -> list[tuple[int, str]]:
        """Return the supervisor, its children and all their descendants: process id and name."""
        found = [(os.getpid(), "supervisor")]
        waiting = sorted(self._kept().items())
        while waiting and len(found) < MAX_PROCESSES:
            pid, name = waiting.pop(0)
            found.append((pid, name))
            below = [(child, f"{name}: {_text(child, 'comm').strip()}") for child in _children(pid)]
            waiting = below + waiting
        return found

    def _process(self, pid: int, name: str, now: float) -> dict[str, Any] | None:
        """Return the figures of one process; None if it has ended."""
        stat = _text(pid, "stat").rpartition(")")[2].split()
        if PROC.is_dir() and len(stat) < 22:
            return None
        told: dict[str, Any] = {"name": name, "pid": pid}
        if stat:
            ticks, before = int(stat[11]) + int(stat[12]), self._ticks.get(pid)
            self._ticks[pid] = now, ticks
            if before is not None and now > before[0]:
                told["cpu"] = round((ticks - before[1]) / TICKS_PER_S / (now - before[0]), 4)
            told["rss_bytes"] = int(stat[21]) * PAGE_BYTES
            if told["rss_bytes"] <= MAX_USS_BYTES:
                told["uss_bytes"] = _private_bytes(pid)
            told["files"], told["files_limit"] = _open_files(pid)
        return told


def disk(use: str, path: Path) -> dict[str, Any]:
    """Return how much a file or folder takes, and how full its disk is."""
    used = files = 0
    for each in _files(path):
        files += 1
        if files > MAX_FILES:
            break
        with contextlib.suppress(OSError):  # removed in the meantime
            used += each.stat(follow_symlinks=False).st_blocks * 512
    told = {"use": use, "path": str(path), "used_bytes": used, "partial": files > MAX_FILES}
    with contextlib.suppress(OSError):
        room = shutil.disk_usage(path if path.exists() else path.parent)
        told |= {"free_bytes": room.free, "size_bytes": room.total}
    return told


async def publish(report: NodeReport, redis_url: str) -> None:
    """Write reports to Redis until cancelled; while Redis is unavailable nothing is written."""
    name = f"{socket.gethostname()} {os.getpid()}"
    pipe = RedisPipe.to(redis_url, "node", quiet=True)
    pipe.start()
    try:
        while True:
            try:
                told = json.dumps(await asyncio.to_thread(report.look))
                await pipe.ask("HSET", keys.NODES, name, told)
            except (LinkLost, hiredis.ReplyError, OSError, ValueError) as error:
                log.debug("what this machine has left is not told: %s", error)
            await asyncio.sleep(INTERVAL_S)
    finally:
        with contextlib.suppress(LinkLost, hiredis.ReplyError):
            await pipe.ask("HDEL", keys.NODES, name)
        await pipe.close()


def _files(path: Path) -> Iterator[os.DirEntry[str] | Path]:
    if not path.is_dir():
        # A database file has a journal and other files next to it.
        yield from path.parent.glob(f"{path.name}*")
        return
    waiting = [os.fspath(path)]
    while waiting:
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                else:
                    yield entry


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in sorted(os.listdir(PROC / str(pid) / "task")):
            found += map(int, _text(pid, f"task/{task}/children").split())
    return found


def _private_bytes(pid: int) -> int | None:
    """Return the memory that a process does not share with others."""
    lines = [line.split() for line in _text(pid, "smaps_rollup").splitlines()]
    private = [int(words[1]) for words in lines if words[0].startswith("Private_")]
    return 1024 * sum(private) if private else None


def _open_files(pid: int) -> tuple[int | None, int | None]:
    """Return the number of open files of a process, and its limit."""
    try:
        count = len(os.listdir(PROC / str(pid) / "fd"))
    except OSError:
        return None, None
    for line in _text(pid, "limits").splitlines():
        if line.startswith("Max open files"):
            soft = line.split()[3]
            return count, int(soft) if soft.isdecimal() else None
    return count, None


def _available_bytes() -> int | None:
    try:
        text = (PROC / "meminfo").read_text()
    except OSError:
        return None
    for line in text.splitlines():
        if line.startswith("MemAvailable:"):
            return 1024 * int(line.split()[1])
    return None


def _text(pid: int, name: str) -> str:
    try:
        return (PROC / str(pid) / name).read_text(errors="replace")
    except OSError:
        return ""

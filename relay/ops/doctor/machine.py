"""The machine: open files, the accept queue, memory, the data folder and its disk."""

from __future__ import annotations

import os
import resource
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from django.conf import settings
from django.core import checks

from hotpath import compiled
from relay.ops.doctor.finding import Finding, Level, fault, ok, warning
from relay.server.summary import SPARE_FILES

MIB: Final = 1024 * 1024
LOW_DISK_BYTES: Final = 2048 * MIB
FULL_DISK_BYTES: Final = 200 * MIB
"""Free space below which a finding is a fault: Redis writes a copy when it rewrites its append-only
file, and events are recorded."""

LOW_MEMORY_BYTES: Final = 256 * MIB

_SOMAXCONN: Final = Path("/proc/sys/net/core/somaxconn")
_MEMORY: Final = Path("/proc/meminfo")
_LEVELS: Final = {checks.ERROR: Level.FAULT, checks.CRITICAL: Level.FAULT}


def open_files() -> Iterator[Finding]:
    """Check the limit of open files: each session is an open file of its worker."""
    relay = settings.RMB.relay
    wanted = relay.workers * relay.user_per_worker // relay.processes + SPARE_FILES
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or hard >= wanted:
        shown = "none" if hard == resource.RLIM_INFINITY else f"{hard:,}"
        yield ok("machine.open-files", f"limit of open files {shown}")
        return
    yield warning(
        "machine.open-files",
        f"a process may open {hard:,} files: a worker holds {max(0, hard - SPARE_FILES):,} "
        f"sessions, not the {wanted - SPARE_FILES:,} that are configured",
        f"raise it (systemd: LimitNOFILE={wanted}; a shell: ulimit -Hn {wanted}), or lower "
        "relay.workers or relay.user_per_worker",
    )


def accept_queue() -> Iterator[Finding]:
    """Check the kernel's bound, to which it silently reduces the backlog of a listener."""
    backlog = settings.RMB.relay.backlog
    try:
        most = int(_SOMAXCONN.read_text())
    except (OSError, ValueError):
        return  # another system: nothing to compare with
    if most >= backlog:
        yield ok("machine.backlog", f"{backlog} connections may wait to be accepted")
        return
    yield warning(
        "machine.backlog",
        f"the kernel lets {most} connections wait to be accepted, relay.backlog is {backlog}: a "
        "crowd that comes back at once is refused",
        f"sysctl -w net.core.somaxconn={backlog}",
    )


def memory() -> Iterator[Finding]:
    """Check how much memory is left for sessions and queues."""
    try:
        lines = dict(line.split(":", 1) for line in _MEMORY.read_text().splitlines())
        available = int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, ValueError, KeyError):
        return
    if available >= LOW_MEMORY_BYTES:
        yield ok("machine.memory", f"{available // MIB:,} MiB of memory available")
        return
    yield warning(
        "machine.memory",
        f"{available // MIB:,} MiB of memory available: the kernel may end a worker or Redis",
        "add memory, or lower relay.user_per_worker and queue.max_bytes (see docs: sizing)",
    )


def data_folder() -> Iterator[Finding]:
    """Check that the data folder can be written, and that its disk has space."""
    folder = settings.RMB.data_dir
    if not folder.exists():
        yield ok("machine.data", f"the data folder {folder} is made at the first start")
        return
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
        free = shutil.disk_usage(folder).free
    except OSError as error:
        yield fault(
            "machine.data",
            f"the data folder {folder} cannot be written: {error.strerror or error}",
            f"give it to the user of the relay: chown -R {_user()} {folder}",
        )
        return
    text = f"{free // MIB:,} MiB free on the disk of {folder}"
    remedy = "make room, or move the data folder (data.dir) to a larger disk"
    if free < FULL_DISK_BYTES:
        yield fault("machine.disk", f"{text}: Redis stops taking messages when it is full", remedy)
    elif free < LOW_DISK_BYTES:
        yield warning("machine.disk", text, remedy)
    else:
        yield ok("machine.disk", text)


def hot_path() -> Iterator[Finding]:
    """Report the form in which a start of the relay would run the hot path; both forms work."""
    yield ok("machine.hot-path", f"hot path: {compiled.state()}")


def contradictions() -> Iterator[Finding]:
    """Run Django's checks: settings that contradict each other, files that others can read."""
    found = checks.run_checks(tags=["relay", "security"], include_deployment_checks=False)
    for message in found:
        if message.is_silenced():
            continue
        level = _LEVELS.get(message.level, Level.WARNING)
        yield Finding(level, f"settings.{message.id}", message.msg, message.hint or "see docs")
    if not found:
        yield ok("settings", "settings agree with each other")


def _user() -> str:
    return str(os.getuid())

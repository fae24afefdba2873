"""Segments that wait for the compactor.

This module closes the segments of dead recorders, and drops the oldest segments when all together
become too large. It needs no package of the analytics extra: where the packages that write Parquet
are not installed, segments wait and must not fill the disk.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import time
from pathlib import Path
from typing import Final

from django.conf import settings

from relay.analytics import gaps, losses, segments
from relay.analytics.gaps import Gap, Why
from relay.analytics.places import Places
from relay.analytics.records import RECORD_BYTES

SILENCE_S: Final = 10.0
"""Longest time between two writes of a running recorder, in seconds, with an allowance for slow
disks. A killed recorder held no event in memory that is later than its last write plus this time.
"""

logger = logging.getLogger("relay.analytics.backlog")


def silence_s(flush_s: float) -> float:
    """Return the longest time between two writes for a recorder's `flush_s`, in seconds."""
    return max(SILENCE_S, 2 * flush_s)


def closed(places: Places) -> list[Path]:
    """Return the closed segments, oldest first."""
    found = []
    for path in places.segments.glob(f"*{segments.SUFFIX}"):
        with contextlib.suppress(FileNotFoundError):
            found.append((changed_us(path), path))
    return [path for _, path in sorted(found)]


def unreadable(places: Places) -> list[Path]:
    """Return the segments that were put aside because they cannot be read."""
    return sorted(places.segments.glob(f"*{segments.UNREADABLE_SUFFIX}"))


def close_dead(places: Places, silence_s: float = SILENCE_S) -> list[Path]:
    """Close the segments of killed recorders, and record a gap for the events that each one lost.

    Args:
        silence_s: longest time between two writes of a recorder, in seconds.

    Raises:
        OSError: the disk is full or broken.
    """
    done = []
    for path in sorted(places.segments.glob(f"*{segments.OPEN_SUFFIX}")):
        found = segments.recover(path, functools.partial(_tell, places, path, silence_s))
        if found is not None:
            done.append(found.path or path)
    return done


def _tell(places: Places, path: Path, silence_s: float, found: segments.Recovered) -> None:
    if found.header is None:
        logger.error("%s: cannot be read, and is put aside", path)
        gap = gap_of(path, None, Why.TORN)
    else:
        silent_us = changed_us(path) + int(silence_s * 1_000_000)
        until_us = min(silent_us, int(time.time() * 1_000_000))
        loss = losses.of_killed(places, found.header, found.writes)
        gap = Gap(
            relay=found.header.relay,
            worker=found.header.worker,
            from_us=found.until_us,
            to_us=max(found.until_us, until_us),
            lost=None,
            why=Why.KILLED,
            estimated=loss.estimated,
            at_most=loss.at_most,
        )
        logger.warning("%s: its recorder was killed; it lost %s", path, gaps.cost([gap]))
    gaps.write(places.root, gap)


def keep_within(places: Places, most_bytes: int) -> int:
    """Drop the oldest segments until `most_bytes` are enough for the rest; record a gap for each.

    Returns:
        Number of dropped segments.
    """
    waiting = []
    for suffix in (segments.SUFFIX, segments.UNREADABLE_SUFFIX):
        for path in places.segments.glob(f"*{suffix}"):
            with contextlib.suppress(FileNotFoundError):
                waiting.append((changed_us(path), path, path.stat().st_size))
    excess = sum(size for _, _, size in waiting) - most_bytes
    dropped = 0
    for _, path, size in sorted(waiting):
        if excess <= 0:
            break
        _drop(places, path)
        excess -= size
        dropped += 1
    return dropped


def _drop(places: Places, path: Path) -> None:
    if path.name.endswith(segments.UNREADABLE_SUFFIX):
        path.unlink()  # its gap was recorded when it was put aside
        return
    gap = gap_of(path, _count(path), Why.DISK)
    logger.error("%s: dropped with %s, for too many segments wait", path, gaps.cost([gap]))
    try:
        gaps.write(places.root, gap)
        path.unlink()
    except OSError:  # the disk is full: the dropped file makes room for its gap
        path.unlink()
        gaps.write(places.root, gap)
    segments.sync_folder(path.parent)


def _count(path: Path) -> int | None:
    try:
        reader = segments.SegmentReader(path.read_bytes(), path)
        return sum(len(block) for block in reader.records()) // RECORD_BYTES
    except segments.SegmentError:
        return None


def gap_of(path: Path, lost: int | None, why: Why) -> Gap:
    """Return the gap for a lost segment, with the owner from its header, or else from its name."""
    relay, worker = segments.owner(path) or owner_by_name(path)
    started = path.name.rpartition(segments.SUFFIX)[0].rpartition("-")[2]
    to_us = changed_us(path)
    from_us = int(started) if started.isdecimal() else to_us
    rows = path.stat().st_size // RECORD_BYTES if lost is None else None
    return Gap(relay, worker, min(from_us, to_us), to_us, lost, why, estimated=rows, at_most=rows)


def owner_by_name(path: Path) -> tuple[str, str]:
    """Return relay and worker from the name of a segment, in which some characters may be replaced.

    The relay is the domain of this installation whose file name matches. Without a match, it is the
    name as it is in the file's name, or "" if characters of it were replaced.
    """
    name, _, rest = path.name.partition("-")
    worker = rest.partition("-")[0]
    for domain in settings.RMB.relay.domains:
        if segments.file_name(domain, "") == f"{name}-":
            return domain, worker
    return ("" if segments.REPLACED in name else name), worker


def put_aside(path: Path) -> None:
    """Rename a segment that cannot be read, so that no compactor tries it again."""
    path.rename(path.with_name(path.name + segments.UNREADABLE_SUFFIX))
    segments.sync_folder(path.parent)


def changed_us(path: Path) -> int:
    """Return the time of the last write to a file, in microseconds since 1970."""
    return path.stat().st_mtime_ns // 1000

"""The segments that wait for the compactor: those of the dead are closed, too many are dropped.

Needs no package of the analytics: without those that write Parquet segments wait, and must not fill
the disk meanwhile.
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
"""A recorder that lives writes more often than this, a slow disk considered: what a killed one had
in memory is not more recent than its last write and this."""

logger = logging.getLogger("relay.analytics.backlog")


def silence_s(flush_s: float) -> float:
    """Longest time between two writes of a recorder that writes every `flush_s`."""
    return max(SILENCE_S, 2 * flush_s)


def closed(places: Places) -> list[Path]:
    """The closed segments, the oldest first."""
    found = []
    for path in places.segments.glob(f"*{segments.SUFFIX}"):
        with contextlib.suppress(FileNotFoundError):
            found.append((changed_us(path), path))
    return [path for _, path in sorted(found)]


def unreadable(places: Places) -> list[Path]:
    """The segments that were put aside."""
    return sorted(places.segments.glob(f"*{segments.UNREADABLE_SUFFIX}"))


def close_dead(places: Places, silence_s: float = SILENCE_S) -> list[Path]:
    """Close the segments of recorders that were killed, with a gap for what they took along.

    Args:
        silence_s: longest time between two writes of a recorder.

    Raises:
        OSError: the disk is full or out of order.
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
    """Drop the oldest segments until the rest is small enough; each leaves a gap.

    Returns:
        How many were dropped.
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
        path.unlink()  # the gap was told when it was put aside
        return
    gap = gap_of(path, _count(path), Why.DISK)
    logger.error("%s: dropped with %s, for too many segments wait", path, gaps.cost([gap]))
    try:
        gaps.write(places.root, gap)
        path.unlink()
    except OSError:  # full to the last byte: what is dropped makes room to tell of it
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
    """The gap a whole segment leaves, as far as its header tells, or else its name."""
    relay, worker = segments.owner(path) or owner_by_name(path)
    started = path.name.rpartition(segments.SUFFIX)[0].rpartition("-")[2]
    to_us = changed_us(path)
    from_us = int(started) if started.isdecimal() else to_us
    rows = path.stat().st_size // RECORD_BYTES if lost is None else None
    return Gap(relay, worker, min(from_us, to_us), to_us, lost, why, estimated=rows, at_most=rows)


def owner_by_name(path: Path) -> tuple[str, str]:
    """Relay and worker by the name of a file, in which some characters were replaced.

    The relay is one of this installation, or as it stands there if nothing was; "" otherwise.
    """
    name, _, rest = path.name.partition("-")
    worker = rest.partition("-")[0]
    for domain in settings.RMB.relay.domains:
        if segments.file_name(domain, "") == f"{name}-":
            return domain, worker
    return ("" if segments.REPLACED in name else name), worker


def put_aside(path: Path) -> None:
    """Keep a segment that cannot be read where no compactor takes it up again."""
    path.rename(path.with_name(path.name + segments.UNREADABLE_SUFFIX))
    segments.sync_folder(path.parent)


def changed_us(path: Path) -> int:
    """When a file was last written to."""
    return path.stat().st_mtime_ns // 1000

"""How many rows a killed recorder lost: an estimate, and a bound.

    estimate    the rate of the recorder before it died, times twice the time between its writes
    bound       what its buffers can hold

A recorder writes every `analytics.flush_ms`, and loses what it recorded since its last write, and
what it was writing: with rows that come steadily between nothing and the estimate. A worker loses
in addition what it had not yet shown to its packer, at the rate of that one. Segments say what is
needed: how many rows each write had, and in their headers the pace of the segment before
(`relay.analytics.segments.Pace`). Where a segment is of an earlier version, whose headers have none
of that, nothing is known.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from relay.analytics import segments
from relay.analytics.places import Places
from relay.analytics.segments import Header, Write

RATE_US: Final = 10_000_000
"""The rate is that of this time before the last write."""

UNSHOWN_US: Final = 100_000
"""A worker shows its packer what it committed after two ticks of 10 ms; a stall of its loop is
considered."""


class Loss(NamedTuple):
    """Rows that were lost; None where nothing is known."""

    estimated: int | None
    at_most: int | None


def packer_of(worker: str) -> str:
    """The name of the process that packs events of a worker."""
    return f"{worker}-packer"


def of_killed(places: Places, header: Header, writes: list[Write]) -> Loss:
    """What a killed recorder lost.

    Args:
        places: the folders of the analytics.
        header: of its last segment.
        writes: of that segment.
    """
    pace = header.pace
    if pace is None:
        return Loss(None, None)
    own = rate(header, writes)
    if own is None:
        return Loss(None, pace.at_most)
    pauses = [
        later.until_us - write.until_us for write, later in pairwise(_recent(writes, RATE_US))
    ]
    rows = own * 2 * max([pace.flush_us, *pauses])
    packed = _newest(places, header.relay, packer_of(header.worker))
    if packed is not None:
        rows += (rate(*packed) or 0) * UNSHOWN_US
    return Loss(min(pace.at_most, round(rows)), pace.at_most)


def rate(header: Header, writes: list[Write]) -> float | None:
    """Rows that a recorder made in a microsecond at the end of its segment; None if unknown.

    Of `RATE_US`, or of its last write where that had more: traffic may just have begun.
    """
    rows, span_us = _sum(_recent(writes, RATE_US))
    found = []
    pace = header.pace
    if pace is not None:
        if pace.before_us > 0 and span_us < RATE_US:
            share_us = min(pace.before_us, RATE_US - span_us)
            rows += pace.before_records * share_us / pace.before_us
            span_us += share_us
        last_rows, last_us = _sum(_recent(writes, pace.flush_us))
        if last_us >= pace.flush_us > 0:
            found.append(last_rows / last_us)
    if span_us > 0:
        # The first write of a packer is up to a second behind the rows it has.
        found.append(rows / max(span_us, pace.flush_us if pace is not None else 0))
    return max(found, default=None)


def _sum(writes: list[Write]) -> tuple[float, int]:
    """Rows of some writes, and how long they took; those of the first came before it."""
    if not writes:
        return 0, 0
    rows = sum(write.records for write in writes[1:])
    return rows, writes[-1].until_us - writes[0].until_us


def _recent(writes: list[Write], us: int) -> list[Write]:
    """The writes of the last `us`, and the one before them."""
    since_us = writes[-1].until_us - us if writes else 0
    earlier = sum(write.until_us <= since_us for write in writes)
    return writes[max(0, earlier - 1) :]


def _newest(places: Places, relay: str, worker: str) -> tuple[Header, list[Write]] | None:
    """The latest segment of a process that is still a segment."""
    name = segments.file_name(relay, worker)
    for path in sorted(places.segments.glob(f"{name}-*{segments.SUFFIX}*"), reverse=True):
        found = _read(path)
        if found is not None:
            return found
    return None


def _read(path: Path) -> tuple[Header, list[Write]] | None:
    try:
        reader = segments.SegmentReader(path.read_bytes(), path)
        for _ in reader.records():
            pass
    except (FileNotFoundError, segments.SegmentError):
        return None
    return reader.header, reader.writes

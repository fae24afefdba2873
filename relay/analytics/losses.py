"""How many rows a killed recorder lost: an estimate, and an upper bound.

    estimate    rate of the recorder before it ended, times twice the time between its writes
    bound       number of rows that its buffers can hold

A recorder writes every `analytics.flush_ms`. If it is killed, it loses the rows recorded since its
last write, and those it was writing: with steady traffic, between nothing and the estimate. A
worker also loses the rows that it had not yet published to its packer, at the rate of the packer.
The segments have the data for this: the number of rows of each write, and in their headers the pace
of the segment before (`relay.analytics.segments.Pace`). Headers of earlier versions have no pace;
then nothing is known.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from relay.analytics import segments
from relay.analytics.places import Places
from relay.analytics.segments import Header, Write

RATE_US: Final = 10_000_000
"""Time before the last write over which the rate is computed, in microseconds."""

UNSHOWN_US: Final = 100_000
"""Time of the events that a worker has not yet published to its packer, in microseconds: two ticks
of 10 ms, with an allowance for a stall of its event loop."""


class Loss(NamedTuple):
    """Number of lost rows; None where it is unknown."""

    estimated: int | None
    at_most: int | None


def packer_of(worker: str) -> str:
    """Return the name of the process that packs the events of a worker."""
    return f"{worker}-packer"


def of_killed(places: Places, header: Header, writes: list[Write]) -> Loss:
    """Return what a killed recorder lost.

    Args:
        places: folders of the analytics.
        header: header of its last segment.
        writes: writes of that segment.
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
    """Return the rows per microsecond of a recorder at the end of its segment; None if unknown.

    The rate is that of the last `RATE_US`, or of the last write if that is higher, because traffic
    may just have begun.
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
        # The first write of a packer comes up to a second after its rows.
        found.append(rows / max(span_us, pace.flush_us if pace is not None else 0))
    return max(found, default=None)


def _sum(writes: list[Write]) -> tuple[float, int]:
    """Return the rows of some writes, and their time span in microseconds.

    The first write only marks the start: its rows came before it.
    """
    if not writes:
        return 0, 0
    rows = sum(write.records for write in writes[1:])
    return rows, writes[-1].until_us - writes[0].until_us


def _recent(writes: list[Write], us: int) -> list[Write]:
    """Return the writes of the last `us` microseconds, and the one before them."""
    since_us = writes[-1].until_us - us if writes else 0
    earlier = sum(write.until_us <= since_us for write in writes)
    return writes[max(0, earlier - 1) :]


def _newest(places: Places, relay: str, worker: str) -> tuple[Header, list[Write]] | None:
    """Return header and writes of the latest segment of a process that is not yet converted."""
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

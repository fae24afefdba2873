"""Estimates of what a killed recorder lost, from what it wrote before."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import pytest

from relay.analytics import losses
from relay.analytics.lake import Lake
from relay.analytics.segments import Header, Pace, Type, Write, block, header_block
from tests.relay.analytics import segment_files as made

START = made.at("2026-03-01T05:00")
SECOND = 1_000_000
PACE = Pace(flush_us=SECOND, at_most=200_000)
HEADER = Header("a.example", "worker-0", START, pace=PACE)


def steady(seconds: int, records: int, first: int = 0) -> list[Write]:
    """Return one write each second; the first one has no rows."""
    return [
        Write(START + (first + n) * SECOND, records if first + n else 0) for n in range(seconds + 1)
    ]


def loss(tmp_path: Path, header: Header, writes: list[Write]) -> losses.Loss:
    return losses.of_killed(Lake(tmp_path), header, writes)


def before(records: int, seconds: int) -> Header:
    pace = PACE._replace(before_records=records, before_us=seconds * SECOND)
    return dataclasses.replace(HEADER, pace=pace)


@pytest.mark.parametrize(
    ("header", "writes", "estimated"),
    [
        (HEADER, steady(5, 400), 800),
        (HEADER, [*steady(99, 1), *steady(10, 400, 100)], 800),
        (HEADER, [*steady(20, 400), Write(START + 23 * SECOND, 1200)], 2400),
        (HEADER, [*steady(20, 10), Write(START + 21 * SECOND, 900)], 1800),
        (HEADER, steady(5, 300_000), 200_000),
        (before(5_000, 10), steady(0, 0), 1000),
        (before(5_000, 10), steady(5, 100), 600),
        (before(5_000, 10), steady(20, 100), 200),
        (HEADER, steady(5, 0), 0),
        (HEADER, [Write(START, 0), Write(START + 50_000, 900)], 1800),
    ],
    ids=[
        *("steady", "idle before", "slow disk", "just begun", "more than it can hold"),
        *("new segment", "half of the time before", "none of it", "nothing happened", "begun late"),
    ],
)
def test_the_rate_before_times_two_writes(
    tmp_path: Path, header: Header, writes: list[Write], estimated: int
) -> None:
    assert loss(tmp_path, header, writes) == (estimated, 200_000)


def test_what_is_not_known_is_not_made_up(tmp_path: Path) -> None:
    old = dataclasses.replace(HEADER, pace=None)
    assert loss(tmp_path, old, steady(5, 400)) == (None, None)
    assert loss(tmp_path, HEADER, steady(0, 0)) == (None, 200_000)


def _segment(header: Header, writes: Sequence[Write]) -> bytes:
    parts = [header_block(header)]
    for write in writes[1:]:
        parts += block(Type.RECORDS, made.record(START, 1) * write.records, write.until_us)
    return b"".join(parts)


def test_a_worker_loses_what_its_packer_had_not_seen(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    for started, records in ((START, 4_000), (START + SECOND, 8_000)):
        header = dataclasses.replace(HEADER, worker="worker-0-packer", started_us=started)
        made.put(lake, _segment(header, steady(5, records)) + b"torn", header, ".seg.open")
    other = dataclasses.replace(HEADER, worker="worker-00-packer", started_us=START + 2 * SECOND)
    made.put(lake, _segment(other, steady(5, 99_999)), other)
    assert loss(tmp_path, HEADER, steady(5, 100)) == (200 + 8_000 // 10, 200_000)

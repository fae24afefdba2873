"""Figures as text; the browser test compares the same samples with the page's script."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.dashboard.figures import Kind, exact, figure, moment, write

SAMPLES = [
    (None, Kind.NUMBER, "-"),
    (0, Kind.NUMBER, "0"),
    (0.4, Kind.NUMBER, "0.4"),
    (12, Kind.NUMBER, "12"),
    (9999, Kind.NUMBER, "9,999"),
    (12_345, Kind.NUMBER, "12.3 k"),
    (999_949, Kind.NUMBER, "1 M"),
    (4_560_000, Kind.NUMBER, "4.56 M"),
    (-5, Kind.NUMBER, "-5"),
    (123.4, Kind.RATE, "123/s"),
    (0, Kind.BYTES, "0 B"),
    (1023, Kind.BYTES, "1023 B"),
    (1024, Kind.BYTES, "1 KiB"),
    (1536, Kind.BYTES, "1.5 KiB"),
    (5 * 2**30, Kind.BYTE_RATE, "5 GiB/s"),
    (0, Kind.DURATION, "0 s"),
    (0.00001, Kind.DURATION, "< 0.1 ms"),
    (0.0015, Kind.DURATION, "1.5 ms"),
    (0.25, Kind.DURATION, "250 ms"),
    (59.9, Kind.DURATION, "59 s"),
    (3600, Kind.DURATION, "1 h"),
    (3.35, Kind.MILLISECONDS, "3.35 ms"),
    (30_000, Kind.MILLISECONDS, "30 s"),
    (3 * 86_400 + 4 * 3600, Kind.DURATION, "3 d 4 h"),
    (math.inf, Kind.DURATION, "∞"),
    (1, Kind.SHARE, "100 %"),
    (0, Kind.SHARE, "0 %"),
    (0.5, Kind.SHARE, "50 %"),
    (0.9999, Kind.SHARE, "99.99 %"),
    (0.999999, Kind.SHARE, "> 99.99 %"),
    (0.000001, Kind.SHARE, "< 0.01 %"),
]


@pytest.mark.parametrize(("value", "kind", "text"), SAMPLES)
def test_samples(value: float | None, kind: Kind, text: str) -> None:
    assert write(value, kind) == text


@given(st.floats(allow_nan=True, allow_infinity=True), st.sampled_from(list(Kind)))
def test_any_number_has_a_short_text(value: float, kind: Kind) -> None:
    bounded = max(min(value, 1e15), -1e15) if math.isfinite(value) else value
    assert 1 <= len(write(bounded, kind)) <= 16


def test_exact() -> None:
    assert exact(1234567.5, Kind.BYTES) == "1,234,567.5 bytes"
    assert 'title="2,048 bytes">2 KiB' in figure(2048, Kind.BYTES)


def test_moments() -> None:
    now = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert ">1 min ago<" in moment(now - timedelta(seconds=61), now)
    assert ">in 5 s<" in moment(now + timedelta(seconds=5), now)
    assert ">0 s ago<" in moment(now - timedelta(milliseconds=164), now)
    assert 'title="2026-01-02 03:04:05 UTC"' in moment(now.timestamp(), now)
    assert moment(0) == moment(None) == '<span class="c-none">-</span>'

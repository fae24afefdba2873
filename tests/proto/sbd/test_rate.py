"""Tests of the rate limit of an address against the reference's arithmetic."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proto.sbd.bounds import MAX_INT
from proto.sbd.rate import ByteRate, announced_byte_nanos, byte_nanos_of
from tests.interop.recorded import recorded_sbd


@pytest.mark.parametrize("case", recorded_sbd()["rate_cases"], ids=lambda case: case["byte_nanos"])
def test_charges(case: dict[str, Any]) -> None:
    rate = ByteRate(case["byte_nanos"], case["burst_bytes"])
    for charge in case["charges"]:
        assert rate.charge(charge["bytes"], charge["t_ns"]) is charge["ok"], charge


@given(st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 20_000)), max_size=30))
def test_no_more_than_rate_and_burst_passes(steps: list[tuple[int, int]]) -> None:
    rate, now, passed = ByteRate(8_000, 10_000), 0, 0
    for wait_ns, size in steps:
        now += wait_ns
        fits = rate.fits(size, now)
        assert rate.charge(size, now) is fits
        passed += size if fits else 0
        assert passed <= 10_000 + now / 8_000


def test_an_unlimited_address_passes_all() -> None:
    rate = ByteRate(0, 0)
    assert all(rate.charge(20_000, 0) for _ in range(1_000))
    assert rate.is_idle(0)


def test_it_may_be_forgotten_when_all_had_its_time() -> None:
    rate = ByteRate(10, 100)
    rate.charge(7, 1_000)
    assert not rate.is_idle(1_069)
    assert rate.is_idle(1_070)


def test_a_changed_rate_keeps_the_bytes_that_are_owed() -> None:
    rate = ByteRate(10, 100)
    assert rate.charge(90, 0)
    rate.change(1_000, 400)  # 50 bytes are still owed
    assert rate.due_ns == 50_400
    assert rate.fits(50, 400) and not rate.fits(51, 400)
    rate.change(2, 400)
    assert rate.fits(50, 400) and not rate.fits(51, 400)
    rate.change(0, 400)
    assert rate.charge(10**6, 400)
    rate.change(10, 500)
    assert rate.fits(100, 500) and not rate.fits(101, 500)


def test_kilobits() -> None:
    assert byte_nanos_of(1_000) == 8_000
    assert byte_nanos_of(8_000_001) == 0
    for wrong in (0, -1):
        with pytest.raises(ValueError, match="above 0 kbit/s"):
            byte_nanos_of(wrong)


def test_connections_share_the_rate() -> None:
    assert announced_byte_nanos(8_000, 1) == 8_000
    assert announced_byte_nanos(8_000, 20) == 160_000
    assert announced_byte_nanos(8_000, 10**6) == MAX_INT
    assert announced_byte_nanos(0, 20) == 1

"""Tests of when an envelope is too old to be opened, and of times that cannot be true."""

from __future__ import annotations

import pytest

from proto.rmb import opening
from proto.rmb import types_pb2 as pb
from proto.rmb.bounds import MAX_CLOCK_OFF_S, MAX_LIFE_S
from proto.rmb.errors import ExpiredError

NOW = 1_712_345_700


@pytest.mark.parametrize(
    ("timestamp", "expiration_s"),
    [
        (NOW, 1),
        (NOW - 100, 101),
        (NOW + MAX_CLOCK_OFF_S, 60),
        (NOW - MAX_CLOCK_OFF_S, MAX_CLOCK_OFF_S + 1),
        (NOW, MAX_LIFE_S),
    ],
)
def test_what_lives_is_opened(timestamp: int, expiration_s: int) -> None:
    opening.check_expiry(pb.Envelope(timestamp=timestamp, expiration=expiration_s), NOW)


@pytest.mark.parametrize(
    ("timestamp", "expiration_s"),
    [
        (NOW, 0),
        (NOW - 100, 100),
        (0, 60),
        (NOW + MAX_CLOCK_OFF_S + 1, 60),
        (NOW, MAX_LIFE_S + 1),
        (2**64 - 1, 2**64 - 1),
        (1_712_345_678, 20),
        (1, 71_234_567_820),  # the same string of digits, which is what is signed
        (171_234_567_820, 0),
        (17_123_456_782, 0),
    ],
)
def test_what_is_expired_or_was_not_made_by_a_clock_is_not(
    timestamp: int, expiration_s: int
) -> None:
    with pytest.raises(ExpiredError):
        opening.check_expiry(pb.Envelope(timestamp=timestamp, expiration=expiration_s), NOW)

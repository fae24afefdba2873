"""Rates of sessions from looks at counters that change every 15 s."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from relay.sessions import rates
from relay.sessions.listing import LiveSession
from relay.sessions.rates import Looks, Rates

SESSION = LiveSession(
    key="7", twin=7, sid=None, epoch=1, worker="boot", slot="0", address="192.0.2.1:5",
    user_agent="", opened_at=datetime(2026, 1, 1, tzinfo=UTC), messages_in=1000, messages_out=0,
    bytes_in=0, bytes_out=0, backlog=0, drops=0, slowed=0,
)  # fmt: skip


def after(messages_in: int) -> LiveSession:
    return replace(SESSION, messages_in=messages_in)


def test_a_step_soon_after_the_first_look_is_that_of_an_interval() -> None:
    looks = Looks()
    assert looks.rates([SESSION], 100) == [None]
    assert looks.rates([SESSION], 102) == [None]
    assert looks.rates([after(1150)], 104) == [Rates(10, 0, 0, 0)]
    assert looks.rates([after(1150)], 118) == [Rates(10, 0, 0, 0)], "until the next step"
    assert looks.rates([after(1180)], 119) == [Rates(2, 0, 0, 0)]


def test_a_late_look_is_an_average() -> None:
    looks = Looks()
    looks.rates([SESSION], 100)
    assert looks.rates([after(1600)], 160) == [Rates(10, 0, 0, 0)]


def test_who_does_nothing_has_a_rate_of_zero() -> None:
    looks = Looks()
    looks.rates([SESSION], 100)
    assert looks.rates([SESSION], 129) == [None]
    assert looks.rates([SESSION], 130) == [Rates(0, 0, 0, 0)]
    assert looks.rates([after(1450)], 160) == [Rates(10, 0, 0, 0)], "not before 115"


def test_who_begins_again_is_not_slowed_by_the_pause() -> None:
    looks = Looks()
    for now in range(100, 702, 2):
        looks.rates([SESSION], now)
    (found,) = looks.rates([after(2600)], 702)
    assert found and found.messages_in == pytest.approx(100, rel=0.1), "1,600 within 16 s"


def test_a_new_connection_begins_anew() -> None:
    looks = Looks()
    looks.rates([SESSION], 100)
    assert looks.rates([replace(SESSION, epoch=2, messages_in=5)], 110) == [None]


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "MAX_KNOWN", 2)
    looks = Looks()
    looks.rates([replace(SESSION, epoch=number) for number in (1, 2, 3)], 100)
    later = [replace(SESSION, epoch=number, messages_in=1015) for number in (1, 2, 3)]
    assert looks.rates(later[1:], 101) == [Rates(1, 0, 0, 0)] * 2
    assert looks.rates(later[:1], 101) == [None]

"""Rates of relays from looks at their totals."""

from __future__ import annotations

from relay.federation.live import PartnerState
from relay.federation.traffic import APART_S, FRESH_S, Meter, Traffic


def relay(domain: str, sent: int, received: int = 0) -> PartnerState:
    return PartnerState(domain, sent=sent, received=received)


def test_the_growth_of_a_minute() -> None:
    meter = Meter()
    for second in range(0, 200, 10):
        meter.note([relay("a", 5 * second, second)], second)
    assert meter.read(190) == {"a": Traffic(5, 1)}
    meter.note([relay("a", 5 * 190 + 600, 190)], 200)
    assert meter.read(200) == {"a": Traffic(14.166666666666666, 50 / 60)}


def test_one_look_says_nothing() -> None:
    meter = Meter()
    assert meter.read(0) == {}
    meter.note([relay("a", 5)], 0)
    meter.note([relay("a", 500)], APART_S / 2)
    assert meter.read(1) == {}, "what follows at once is the same look"


def test_old_looks_are_not_now() -> None:
    meter = Meter()
    meter.note([relay("a", 0)], 0)
    meter.note([relay("a", 50)], 10)
    assert meter.read(10 + FRESH_S) == {"a": Traffic(5, 0)}
    assert meter.read(11 + FRESH_S) == {}


def test_relays_come_and_are_forgotten() -> None:
    meter = Meter()
    meter.note([relay("a", 100), relay("gone", 7)], 0)
    meter.note([relay("a", 3), relay("new", 10)], 10)
    assert meter.read(10) == {"a": Traffic(0, 0)}
    meter.note([relay("a", 13), relay("new", 30)], 20)
    assert meter.read(20)["new"] == Traffic(2, 0)

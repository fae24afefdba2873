"""Message rates of relays, computed from samples of their totals."""

from __future__ import annotations

from relay.federation.live import PartnerState
from relay.federation.traffic import APART_S, MIN_SPAN_S, WINDOW_S, Meter, Traffic


def relay(domain: str, sent: int, received: int = 0) -> PartnerState:
    return PartnerState(domain, sent=sent, received=received)


def test_the_growth_of_a_minute() -> None:
    meter = Meter()
    for second in range(0, 200, 10):
        meter.note([relay("a", 5 * second, second)], second)
    assert meter.rates([relay("a", 950, 190)], 190) == {"a": Traffic(5, 1)}
    assert meter.rates([relay("a", 950 + 350, 260)], 260) == {"a": Traffic(5, 1)}
    assert meter.rates([relay("a", 1300, 260)], 190 + WINDOW_S + 1) == {}


def test_looks_that_are_too_close_say_nothing() -> None:
    meter = Meter()
    assert meter.rates([relay("a", 5)], 0) == {}
    meter.note([relay("a", 5)], 0)
    meter.note([relay("a", 500)], APART_S / 2)
    assert meter.rates([relay("a", 500)], MIN_SPAN_S / 2) == {}
    assert meter.rates([relay("a", 25)], 10) == {"a": Traffic(2, 0)}


def test_relays_come_and_are_forgotten() -> None:
    meter = Meter()
    meter.note([relay("a", 100), relay("gone", 7)], 0)
    now = [relay("a", 3), relay("new", 10)]
    assert meter.rates(now, 10) == {"a": Traffic(0, 0)}
    meter.note(now, 10)
    assert meter.rates([relay("new", 30)], 20) == {"new": Traffic(2, 0)}

"""Orders and events in the form in which Redis stores them."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.trace import events, orders
from relay.trace.bounds import MAX_EVENTS_PER_S, MAX_TEXT_CHARS
from relay.trace.events import Event, EventError, Stage
from relay.trace.orders import Kind, Order, OrderError

texts = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=MAX_TEXT_CHARS)


@given(texts, st.floats(0.0001, 1), st.integers(1, MAX_EVENTS_PER_S))
def test_an_order_comes_back(subject: str, sample: float, events_per_s: int) -> None:
    order = Order("id", Kind.UID, subject, 1234.5, sample, events_per_s)
    read = orders.decode("id", order.encode())
    assert read._replace(sample=sample) == order
    assert abs(read.sample - sample) < 1e-5


@pytest.mark.parametrize(
    "text",
    ["", "x", "1 1 1 uid", "1 1 1 uid ", "1 2 1 uid a", "1 0 1 uid a", "1 1 0 uid a",
     "1 1 9999 uid a", "1 1 1 twin x", "1 1 1 session :a", "1 nan 1 uid a", "1 1 1 other a"],
)  # fmt: skip
def test_what_is_no_order(text: str) -> None:
    with pytest.raises(OrderError):
        orders.decode("id", text)


def test_a_sample_is_the_same_everywhere_and_as_large_as_asked() -> None:
    order = Order("id", Kind.TWIN, "7", 0.0, 0.25)
    chosen = [uid for uid in map(str, range(10_000)) if order.samples(uid)]
    assert 2_300 < len(chosen) < 2_700
    assert [uid for uid in map(str, range(10_000)) if order._replace(id="b").samples(uid)] == chosen
    wider = order._replace(sample=0.5)
    assert all(wider.samples(uid) for uid in chosen)


numbers = st.floats(-1e12, 1e12)


@given(texts, texts, numbers, st.sampled_from(Stage), st.integers(0, 1 << 60))
def test_an_event_comes_back(uid: str, text: str, at: float, stage: Stage, epoch: int) -> None:
    event = Event(at, text, text, stage, uid, text, "", 5, "request", text, epoch, ms=at)
    assert events.decode(event.encode(), "") == event
    assert events.decode(event.encode().encode(), "o") == event._replace(order="o")


@given(st.binary() | st.text().map(str.encode))
def test_what_is_no_event(raw: bytes) -> None:
    with contextlib.suppress(EventError):
        events.decode(raw)


@pytest.mark.parametrize(
    "text",
    ["[]", "{}", '{"stage": "x"}', '{"stage": "tried", "at": "x"}', '{"stage": "tried", "uid": 1}',
     '{"stage": "tried", "at": Infinity}', '{"stage": "tried", "epoch": true}'],
)  # fmt: skip
def test_fields_of_another_kind(text: str) -> None:
    with pytest.raises(EventError):
        events.decode(text)

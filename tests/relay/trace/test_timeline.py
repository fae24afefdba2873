"""The path of one message, whatever the order and the clocks of its events."""

from __future__ import annotations

import itertools
import random

from hypothesis import given
from hypothesis import strategies as st

from relay.trace import texts
from relay.trace.events import Event, Stage
from relay.trace.timeline import timeline

LOCAL = (Stage.ACCEPTED, Stage.COMMITTED, Stage.DELIVERED, Stage.ACKNOWLEDGED, Stage.REMOVED)


def event(stage: Stage, at: float, by: str = "w0", here: str = "a", **more: object) -> Event:
    fields = {
        "uid": "u", "source": "1", "destination": "2", "size_bytes": 10, "kind": "request", **more,
    }  # fmt: skip
    return Event(at, by, here, stage, **fields)  # type: ignore[arg-type]


def local(begin: float = 100.0, **more: object) -> list[Event]:
    return [event(stage, begin + number / 1000, **more) for number, stage in enumerate(LOCAL)]


def stages(events: list[Event]) -> list[str]:
    (leg,) = timeline("u", events).legs
    return [step.event.stage.value for step in leg.steps]


@given(st.permutations(local()))
def test_the_order_they_are_read_in_does_not_matter(events: list[Event]) -> None:
    made = timeline("u", events)
    assert made == timeline("u", local())
    (leg,) = made.legs
    assert leg.outcome == "delivered"
    assert round(leg.took_s, 6) == 0.004
    assert [step.moved_s for step in leg.steps] == [0.0] * 5


@given(st.integers(-5_000, 5_000), st.randoms(use_true_random=False))
def test_workers_whose_clocks_disagree(skew_ms: int, shuffler: random.Random) -> None:
    """Steps are in order when the delivering worker's clock differs by seconds."""
    events = [*local()[:2], event(Stage.QUEUED, 100.0015)]
    events += [
        each._replace(by="w1", at=each.at + skew_ms / 1000, entry="1-0", epoch=7)
        for each in local()[2:]
    ]
    shuffler.shuffle(events)
    (leg,) = timeline("u", events).legs
    assert [step.event.stage for step in leg.steps] == [
        *(*LOCAL[:2], Stage.QUEUED, *LOCAL[2:]),
    ]
    assert [step.when for step in leg.steps] == sorted(step.when for step in leg.steps)
    assert all(step.moved_s > -1e-6 for step in leg.steps)


@given(st.integers(-100_000, 100_000))
def test_another_relay_is_moved_as_a_whole(skew_ms: int) -> None:
    """A partner relay's steps are moved into the attempt that sent the message, intervals kept."""
    skew_s = skew_ms / 1000
    sent = [
        event(Stage.ACCEPTED, 100.0),
        event(Stage.OUTBOX, 100.001),
        event(Stage.TRIED, 100.002, "fed", relay="x", answer="time-out", ms=3000.0),
        event(Stage.TRIED, 103.1, "fed", relay="b", answer="answered 202", ms=20.0),
    ]
    there = [
        each._replace(here="b", by="w9", at=each.at + 3.105 + skew_s, relay="a") for each in local()
    ]
    (leg,) = timeline("u", [*there, *sent]).legs
    assert [step.event.stage for step in leg.steps] == [
        *(Stage.ACCEPTED, Stage.OUTBOX, Stage.TRIED, Stage.TRIED),
        *LOCAL,
    ]
    when = {(step.event.here, step.event.stage): step.when for step in leg.steps}
    assert when["b", Stage.ACCEPTED] >= 103.1 - 1e-6
    assert when["b", Stage.COMMITTED] <= 103.12 + 1e-6
    assert abs(when["b", Stage.REMOVED] - when["b", Stage.ACCEPTED] - 0.004) < 1e-6
    if -4 < skew_ms < 13:
        assert leg.shifts == {}
    else:
        assert abs(leg.shifts.get("b", 0.0) + skew_s) < 0.025
    assert leg.outcome == "delivered"


def test_delivered_to_two_sessions_one_after_the_other() -> None:
    """The first session closes before it gets the bytes: the acknowledgement follows the second."""
    events = [
        *local()[:2],
        event(Stage.DELIVERED, 100.01, entry="1-0", epoch=5),
        event(Stage.DELIVERED, 107.0, by="w1", entry="1-0", epoch=6),
        event(Stage.ACKNOWLEDGED, 106.9, by="w1", entry="1-0", epoch=6),
    ]
    (leg,) = timeline("u", events).legs
    assert [(step.event.stage, step.event.epoch) for step in leg.steps[2:]] == [
        *((Stage.DELIVERED, 5), (Stage.DELIVERED, 6), (Stage.ACKNOWLEDGED, 6)),
    ]
    assert leg.steps[-1].when == 107.0


def test_request_answer_and_error_are_legs() -> None:
    events = [
        *local(),
        *local(101.0, source="2", destination="1", kind="response"),
        event(Stage.DELIVERED, 102.0, source="", destination="1", kind="error"),
        event(Stage.ACCEPTED, 90.0, uid="another"),
    ]
    random.Random(1).shuffle(events)
    legs = timeline("u", events).legs
    assert [leg.kind for leg in legs] == ["request", "response", "error"]
    assert legs[2].outcome == "written, not acknowledged"


def test_two_orders_that_followed_one_message() -> None:
    assert stages(local(order="one") + local(order="two")) == [stage.value for stage in LOCAL]


def test_outcomes() -> None:
    accepted, committed = local()[:2]
    outbox = event(Stage.OUTBOX, 100.1)
    failed = event(Stage.TRIED, 100.2, relay="b", answer="answered 503")
    ends = {
        "accepted": [accepted],
        "in its queue": [accepted, committed],
        "in its queue: catching_up": [
            *(accepted, committed, event(Stage.QUEUED, 101, reason="catching_up"))
        ],
        "refused: limit_count": [event(Stage.REFUSED, 1.0, reason="limit_count")],
        "expired": [accepted, committed, event(Stage.EXPIRED, 160.0, reason="expired")],
        "in the outbox": [accepted, outbox],
        "tried once, last at b: answered 503": [accepted, outbox, failed],
        "tried 2 times, last at b: answered 503": [
            *(accepted, outbox, failed, failed._replace(at=103.0))
        ],
        "accepted by c": [
            *(accepted, outbox, failed),
            event(Stage.TRIED, 104.0, relay="c", answer="answered 202"),
        ],
        "given up: remote_4xx": [
            *(accepted, outbox, failed, event(Stage.GIVEN_UP, 104.0, reason="remote_4xx"))
        ],
        "declined for now: queue_full": [event(Stage.DECLINED, 1.0, reason="queue_full")],
    }
    for outcome, events in ends.items():
        for order in itertools.islice(itertools.permutations(events), 24):
            (leg,) = timeline("u", order).legs
            assert leg.outcome == outcome


def test_nothing_is_known() -> None:
    assert timeline("u", []).legs == ()


def test_lines_do_nothing_to_the_terminal() -> None:
    evil = "7:\x1b[2J"
    found = event(Stage.TRIED, 100.0, uid=evil, source=evil, destination=evil, relay=evil)
    lines = [texts.event_line(found), *texts.timeline_lines(timeline(evil, [found]))]
    assert all(line.isprintable() for line in lines), lines

"""`relay.trace.waterfall`: bars from the step that was waited for to the step, on one scale."""

from __future__ import annotations

import pytest

from relay.trace.events import Event, Stage
from relay.trace.timeline import timeline
from relay.trace.waterfall import Waterfall, ticks, waterfall

BEGIN = 1_700_000_000.0


def event(after_ms: float, stage: Stage, **fields: object) -> Event:
    values: dict[str, object] = {
        "by": "worker 0/a", "here": "a.example", "uid": "u", "source": "7",
        "destination": "9", "size_bytes": 10, "kind": "request", **fields,
    }  # fmt: skip
    return Event(at=BEGIN + after_ms / 1000, stage=stage, **values)  # type: ignore[arg-type]


def shown(*events: Event) -> Waterfall:
    return waterfall(timeline("u", events))


def bars(found: Waterfall) -> list[tuple[str, float, float]]:
    """Return (stage, begin, length) of each bar, in milliseconds."""
    return [
        (bar.step.event.stage.value, round(bar.begin_s * 1000, 3), round(bar.length_s * 1000, 3))
        for run in found.runs
        for bar in run.bars
    ]


def test_each_step_from_what_it_waited_for() -> None:
    found = shown(
        event(0, Stage.ACCEPTED),
        event(2, Stage.COMMITTED, ms=1.5, entry="1-1"),
        event(5, Stage.DELIVERED, by="worker 1/b", entry="1-1", epoch=3),
        event(9, Stage.ACKNOWLEDGED, by="worker 1/b", entry="1-1", epoch=3),
        event(10, Stage.REMOVED, by="worker 1/b", entry="1-1", epoch=3),
    )
    assert bars(found) == [
        ("accepted", 0, 0),
        ("committed", 0, 2),
        ("delivered", 2, 3),
        ("acknowledged", 5, 4),
        ("removed", 9, 1),
    ]
    assert found.length_s == pytest.approx(0.01)
    assert [lane.process for lane in found.lanes] == ["worker 0/a", "worker 1/b"]
    last = found.runs[0].bars[-1]
    assert (last.lane.number, round(last.left), round(last.end)) == (2, 90, 100)


def test_a_message_delivered_twice() -> None:
    """Each acknowledgement belongs to its own delivery."""
    found = shown(
        event(0, Stage.COMMITTED, entry="1-1"),
        event(1, Stage.DELIVERED, entry="1-1", epoch=3),
        event(50, Stage.DELIVERED, entry="1-1", epoch=4),
        event(52, Stage.ACKNOWLEDGED, entry="1-1", epoch=4),
    )
    assert bars(found)[-1] == ("acknowledged", 50, 2)


def test_over_two_relays() -> None:
    there = {"here": "b.example", "by": "worker 0/c"}
    found = shown(
        event(0, Stage.ACCEPTED),
        event(2, Stage.OUTBOX),
        event(4, Stage.TRIED, by="celery/d", relay="c.example", answer="timed out", ms=3),
        event(8, Stage.TRIED, by="celery/d", relay="b.example", answer="answered 202", ms=12),
        event(10, Stage.WAITS, relay="a.example", **there),
        event(11, Stage.ACCEPTED, relay="a.example", **there),
        event(14, Stage.COMMITTED, **there),
    )
    assert bars(found) == [
        ("accepted", 0, 0),
        ("outbox", 0, 2),
        ("tried", 4, 3),
        ("tried", 8, 12),
        ("waits", 8, 2),
        ("accepted", 10, 1),
        ("committed", 11, 3),
    ]
    # The scale ends with the answer, not with the last step.
    assert found.length_s == pytest.approx(0.02)
    assert {lane.relay for lane in found.lanes} == {"a.example", "b.example"}


def test_an_answer_stands_after_its_request() -> None:
    found = shown(
        event(0, Stage.ACCEPTED),
        event(40, Stage.ACCEPTED, kind="response", source="9", destination="7"),
        event(60, Stage.COMMITTED, kind="response", source="9", destination="7"),
    )
    assert [run.leg.kind for run in found.runs] == ["request", "response"]
    assert found.runs[1].bars[0].begin_s == pytest.approx(0.04)


def test_one_step_alone_has_a_scale() -> None:
    found = shown(event(0, Stage.ACCEPTED))
    assert found.length_s > 0 and found.runs[0].bars[0].left == 0


@pytest.mark.parametrize("length_s", [1e-6, 0.0034, 0.01, 0.25, 1.0, 59.0, 3600.0])
def test_ticks_are_few_and_round(length_s: float) -> None:
    found = ticks(length_s)
    assert 2 <= len(found) <= 5
    assert found[0] == (0, 0) and found[-1].left <= 100 + 1e-6
    step = found[1].at_s
    assert f"{step:.0e}"[0] in "125" and float(f"{step:.0e}") == pytest.approx(step)

"""Increases of counters over the last minutes."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from relay.alarms.rates import MAX_SOURCES, MAX_STEPS, Memory, look


def test_what_was_counted_before_the_first_look_is_old() -> None:
    memory, grown = look({}, {"a": 50}, 100, 60)
    assert grown == {"a": 0}
    memory, grown = look(memory, {"a": 53}, 105, 60)
    assert grown == {"a": 3}
    _, grown = look(memory, {"a": 53}, 164, 60)
    assert grown == {"a": 3}
    _, grown = look(memory, {"a": 53}, 166, 60)
    assert grown == {"a": 0}


def test_a_worker_that_came_later_began_at_nothing() -> None:
    memory, _ = look({}, {"a": 50}, 100, 60)
    _, grown = look(memory, {"a": 50, "b": 7}, 105, 60)
    assert grown == {"a": 0, "b": 7}


def test_before_any_worker_was_there_is_a_look_too() -> None:
    memory, _ = look({}, {}, 100, 60)
    _, grown = look(memory, {"b": 7}, 105, 60)
    assert grown == {"b": 7}


def test_a_clock_that_goes_back_forgets() -> None:
    memory, _ = look({}, {"a": 0}, 100, 60)
    memory, _ = look(memory, {"a": 5}, 105, 60)
    _, grown = look(memory, {"a": 6}, 50, 60)
    assert grown == {"a": 1}


@given(st.lists(st.dictionaries(st.sampled_from("abc"), st.integers(0, 1000)), max_size=60))
def test_memory_is_json_and_bounded(looks: list[dict[str, int]]) -> None:
    memory: Memory = {}
    for number, totals in enumerate(looks):
        memory, grown = look(memory, totals, number * 5.0, 60)
        assert memory == json.loads(json.dumps(memory))
        assert all(value >= 0 for value in grown.values())
        assert len(memory["steps"]) <= MAX_STEPS
        # Three counters, each with at most one step for each look.
        assert len(memory["steps"]) <= 3 * 12


def test_the_increases_of_many_workers_are_all_counted() -> None:
    workers = [str(each) for each in range(64)]
    memory, grown = look({}, dict.fromkeys(workers, 0.0), 1000, 60)
    for number in range(1, 12):
        memory, grown = look(memory, dict.fromkeys(workers, float(number)), 1000 + 5 * number, 60)
    assert sum(grown.values()) == 64 * 11


def test_many_sources_are_forgotten() -> None:
    memory: Memory = {}
    for number in range(3):
        totals = {f"{number}-{each}": 1.0 for each in range(MAX_SOURCES)}
        memory, _ = look(memory, totals, number * 5.0, 60)
    assert len(memory["last"]) == MAX_SOURCES

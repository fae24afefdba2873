"""Runs each fuzz target with a small budget in the normal test run; `make fuzz` runs for long."""

from __future__ import annotations

import itertools
import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.fuzz import runner

INPUTS = 200


@pytest.mark.parametrize("name", runner.discover())
def test_target_survives_its_first_inputs(name: str) -> None:
    tally = runner.run_chunk(name, 0, INPUTS)
    assert tally.inputs > 0
    assert not tally.failures, f"{tally.failures[0].name}\n{tally.failures[0].error}"


def test_a_failing_input_is_named_and_can_be_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks_on_even(rng: random.Random) -> None:
        assert rng.randrange(1000) % 2, "even"

    monkeypatch.setattr(runner, "discover", lambda: {"sample": breaks_on_even})
    tally = runner.run_chunk("sample", 0, 50)
    assert len(tally.failures) == runner.MAX_FAILURES_PER_CHUNK
    for failure in tally.failures:
        name, _, number = failure.name.rpartition(":")
        with pytest.raises(AssertionError, match="even"):
            breaks_on_even(runner.seeded(name, int(number)))


def test_the_budget_goes_round_all_targets() -> None:
    turns = itertools.islice(runner._turns(["a", "b"], 100), 3)
    assert list(turns) == [("a", 100), ("b", 100), ("a", 100 + runner.CHUNK_INPUTS)]


def test_slow_targets_do_not_shrink_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    def half_of_it(name: str, first: int, count: int) -> runner.Tally:
        return runner.Tally(max(1, count // 2), 1.0)

    monkeypatch.setattr(runner, "run_chunk", half_of_it)
    monkeypatch.setattr(runner, "ProcessPoolExecutor", ThreadPoolExecutor)
    tallies = runner.run(["a", "b"], runner.Budget(5_000, 60), 1, 0)
    assert sum(tally.inputs for tally in tallies.values()) == 5_000

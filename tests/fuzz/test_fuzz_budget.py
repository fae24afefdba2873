"""A small budget of each fuzz target in the normal run; `make fuzz` is the long one."""

from __future__ import annotations

import random

import pytest

from tests.fuzz import runner

INPUTS = 300


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
    chunks = list(runner._chunks(["a", "b"], 2 * runner.CHUNK_INPUTS + 7, 100))
    assert chunks == [
        ("a", 100, runner.CHUNK_INPUTS),
        ("b", 100, runner.CHUNK_INPUTS),
        ("a", 100 + runner.CHUNK_INPUTS, 7),
    ]

"""The delivery promises, tested with real workers and a real Valkey.

The actions are those of simulated runs, drawn from a seed. Kills, cuts and pauses hit wherever the
processes happen to be, so a failing seed need not fail again; the history printed with it shows
what happened. `RMB_MODEL_EXAMPLES` sets the number of runs, a twentieth of which is done for each
set of faults; `RMB_MODEL_SEED` is the first seed.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.model.actions import FAULT_SETS
from tests.model.real_actions import real_run
from tests.support.real_world import RealWorld, real_world

RUNS = max(1, int(os.environ.get("RMB_MODEL_EXAMPLES", "40")) // 20)  # for each set of faults
FIRST_SEED = int(os.environ.get("RMB_MODEL_SEED", "0"))
STEPS = 60


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RealWorld]:
    async with real_world(tmp_path_factory.mktemp("world")) as started:
        yield started


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("faults", FAULT_SETS.values(), ids=FAULT_SETS)
async def test_random_runs(world: RealWorld, faults: frozenset[str]) -> None:
    for seed in range(FIRST_SEED, FIRST_SEED + RUNS):
        try:
            await real_run(world, seed, STEPS, faults)
        except BaseException:
            print(f"seed {seed}:\n" + "\n".join(sorted(world.oracle.history)[-400:]))
            raise
        finally:
            world.end()
        print(f"seed {seed}: {dict(world.oracle.outcomes)}, {dict(world.oracle.excused)}")

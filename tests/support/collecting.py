"""Faster collection of tests, with less work for each process of a run.

    worker k of n -> imports every n-th test module, which rewrites its assertions and caches that
                  -> collects all tests; the other workers have cached most of their modules

Every process of a run imports all test modules. In a fresh checkout each would rewrite the
assertions of each module, at the same time as the others, which is most of the cost of collecting.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
UNTESTED = TESTS / "bench"


def import_share(config: pytest.Config) -> None:
    """Import the modules that this worker prepares for the others; none outside a worker."""
    worker = getattr(config, "workerinput", None)
    if worker is None:
        return
    number = int(worker["workerid"].removeprefix("gw"))
    for module in modules(config.args)[number :: worker["workercount"]]:
        with contextlib.suppress(Exception, pytest.skip.Exception):  # pytest reports it later
            importlib.import_module(module)


def modules(arguments: Sequence[str]) -> list[str]:
    """Return the names of the test modules in the folders among these arguments."""
    folders = [Path(each).resolve() for each in arguments]
    files = {file for folder in folders for file in folder.rglob("test_*.py")}
    return sorted(
        ".".join(file.relative_to(ROOT).with_suffix("").parts)
        for file in files
        if file.is_relative_to(TESTS) and not file.is_relative_to(UNTESTED)
    )


@contextlib.contextmanager
def without_garbage() -> Iterator[None]:
    """Disable garbage collection during the block, and exempt all objects that exist at its end."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()

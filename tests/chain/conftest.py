"""Fixtures for tests of the chain client: a test node."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.devchain import Devchain, running_devchain
from tests.support.identities import twin


@pytest.fixture
def devchain(tmp_path: Path) -> Iterator[Devchain]:
    """Run a node with twins 1 to 9 that makes a block for each transaction."""
    with running_devchain(tmp_path, [twin(number) for number in range(1, 10)]) as chain:
        yield chain


@pytest.fixture(scope="module")
def shared_devchain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Devchain]:
    """Run a node like `devchain`, shared by the tests of a module, which change no knobs."""
    folder = tmp_path_factory.mktemp("devchain")
    with running_devchain(folder, [twin(number) for number in range(1, 10)]) as chain:
        yield chain

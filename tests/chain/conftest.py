"""Fixtures of the chain's tests: a stand-in node for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.devchain import Devchain, running_devchain
from tests.support.identities import twin


@pytest.fixture
def devchain(tmp_path: Path) -> Iterator[Devchain]:
    """A node with twins 1 to 9, and a block for each transaction."""
    with running_devchain(tmp_path, [twin(number) for number in range(1, 10)]) as chain:
        yield chain

"""Fixtures: one NATS server for all tests of a process, with a separate lattice for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from lattice.connection import LatticeConnection
from lattice.embedded import EmbeddedNats
from lattice.options import LatticeOptions
from tests.support.nats_server import ROOMY, fresh_lattice, nats_server


@pytest.fixture(scope="session")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedNats]:
    with nats_server(tmp_path_factory.mktemp("nats"), config=ROOMY) as server:
        yield server


@pytest.fixture
def options(nats: EmbeddedNats) -> LatticeOptions:
    return LatticeOptions(servers=(nats.url,), lattice=fresh_lattice())


@pytest.fixture
async def connection(options: LatticeOptions) -> AsyncIterator[LatticeConnection]:
    async with LatticeConnection(options) as opened:
        yield opened

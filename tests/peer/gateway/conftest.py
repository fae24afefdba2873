"""A relay for all tests of gateways, and gateways with a Redis each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.gateway_process import GatewayProcess
from tests.support.identities import Twin, twins_csv
from tests.support.redis_servers import RedisServer, start_valkey
from tests.support.relay_process import RelayProcess, make_data_folder
from tests.support.world import TWINS, fresh_twins

StartGateway = Callable[..., GatewayProcess]


@pytest.fixture(scope="package")
def data_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a relay's data folder that contains all test twins."""
    return make_data_folder(tmp_path_factory.mktemp("gateway-data"))


@pytest.fixture(scope="package")
def relay(
    tmp_path_factory: pytest.TempPathFactory, data_template: Path, valkey_server: RedisServer
) -> Iterator[RelayProcess]:
    """Start a relay that no test stops, with a Redis that no test empties."""
    folder = tmp_path_factory.mktemp("gateway-relay")
    redis = start_valkey(folder)
    process = RelayProcess(folder / "relay", data_template, redis, operator_site=True)
    try:
        yield process.start()
    finally:
        process.stop()
        redis.remove()


@pytest.fixture(scope="package")
def twins_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write all test twins to a file in the form that gateways read."""
    path = tmp_path_factory.mktemp("twins") / "twins.csv"
    path.write_text(twins_csv(TWINS.values()))
    return path


@pytest.fixture
def redises(tmp_path: Path) -> Iterator[Callable[[], RedisServer]]:
    """Start Redis servers for one test."""
    started: list[RedisServer] = []

    def start() -> RedisServer:
        folder = tmp_path / f"redis-{len(started)}"
        folder.mkdir()
        started.append(start_valkey(folder, append_fsync="no"))
        return started[-1]

    yield start
    for each in started:
        each.remove()


@pytest.fixture
def start_gateway(
    tmp_path: Path, relay: RelayProcess, twins_file: Path, redises: Callable[[], RedisServer]
) -> Iterator[StartGateway]:
    """Start gateways of fresh twins at the relay."""
    started: list[GatewayProcess] = []

    def start(
        *faults: str,
        twin: Twin | None = None,
        redis: RedisServer | None = None,
        relays: tuple[str, ...] = (),
        twins: Path | None = None,
        more: tuple[str, ...] = (),
    ) -> GatewayProcess:
        number = (twin or fresh_twins(1)[0]).id
        gateway = GatewayProcess(
            tmp_path / "gateways",
            number,
            redis or redises(),
            relays or (relay.url,),
            twins or twins_file,
            *more,
        )
        started.append(gateway)
        return gateway.start(*faults)

    yield start
    for each in started:
        each.stop()
        print(f"--- log of gateway {each.twin}\n{each.log()[-20_000:]}")

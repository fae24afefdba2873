"""Relays for end-to-end tests.

`relay` (one worker, both servers in turn where a test asks for `any_relay`) and `relay_pair` (two
workers) are shared by all tests that leave them unchanged. A test that kills, drains or configures
a relay starts its own with `start_relay`.
"""

from __future__ import annotations

import contextlib
import itertools
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from tests.support.federated import RELAYS, FederatedRelay, World
from tests.support.redis_servers import RedisServer, start_valkey
from tests.support.relay_process import RelayProcess, make_data_folder
from tests.support.secrets_in_logs import assert_none
from tests.support.started import Started

if TYPE_CHECKING:
    from playwright.async_api import Browser

StartRelay = Callable[..., RelayProcess]


@pytest.fixture(scope="package")
def data_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a data folder whose database contains the test twins."""
    return make_data_folder(tmp_path_factory.mktemp("template"))


@pytest.fixture(autouse=True)
def _show_logs() -> Iterator[None]:
    for relay in RelayProcess.running:
        relay.show_new_log()
    yield
    for relay in RelayProcess.running:
        relay.show_new_log()


def _shared(
    tmp_path_factory: pytest.TempPathFactory, data_template: Path, **options: Any
) -> Iterator[RelayProcess]:
    server = start_valkey(tmp_path_factory.mktemp("redis"), append_fsync="no")
    try:
        relay = RelayProcess(tmp_path_factory.mktemp("relay"), data_template, server, **options)
        try:
            yield relay.start()
        finally:
            relay.stop()
    finally:
        server.remove()


@pytest.fixture(scope="package")
def relay(tmp_path_factory: pytest.TempPathFactory, data_template: Path) -> Iterator[RelayProcess]:
    """Start a relay with one worker under uvicorn, and the operator site."""
    yield from _shared(tmp_path_factory, data_template, operator_site=True)


@pytest.fixture(scope="package")
def daphne_relay(
    tmp_path_factory: pytest.TempPathFactory, data_template: Path
) -> Iterator[RelayProcess]:
    """Start a relay with one worker under daphne."""
    yield from _shared(tmp_path_factory, data_template, server="daphne")


@pytest.fixture(scope="package")
def relay_pair(
    tmp_path_factory: pytest.TempPathFactory, data_template: Path
) -> Iterator[RelayProcess]:
    """Start a relay with two workers under uvicorn."""
    yield from _shared(tmp_path_factory, data_template, processes=2)


@pytest.fixture(params=["relay", "daphne_relay"], ids=["uvicorn", "daphne"])
def any_relay(request: pytest.FixtureRequest) -> RelayProcess:
    """Return the relay of each server in turn."""
    relay: RelayProcess = request.getfixturevalue(request.param)
    return relay


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[Callable[..., RedisServer]]:
    """Start Redis servers for one test; arguments as for `start_valkey`, without the folder.

    `program=start_redis62` starts the oldest supported server.
    """
    servers: list[RedisServer] = []
    numbers = itertools.count()

    def start(
        *args: str,
        append_fsync: str | None = None,
        program: Callable[..., RedisServer] = start_valkey,
    ) -> RedisServer:
        server = program(tmp_path / f"redis{next(numbers)}", *args, append_fsync=append_fsync)
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.remove()


@pytest.fixture
def start_relay(
    tmp_path: Path, data_template: Path, start_server: Callable[..., RedisServer]
) -> Iterator[StartRelay]:
    """Start relays for one test; arguments as for `RelayProcess`, after the folders.

    A relay that is given no server gets a new Valkey; `relay.redis` is the server. With
    `wait=False` the call returns before the relay is ready.
    """
    relays: list[RelayProcess] = []
    numbers = itertools.count()

    def start(
        redis_server: RedisServer | None = None, *, wait: bool = True, **options: Any
    ) -> RelayProcess:
        server = redis_server or start_server(append_fsync="no")
        folder = tmp_path / f"relay{next(numbers)}"
        relay = RelayProcess(folder, data_template, server, **options)
        relays.append(relay)
        return relay.start(wait=wait)

    yield start
    for relay in relays:
        relay.show_new_log()
        relay.stop()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Started]]:
    """Start relays in the test's folder, and stop those that still run when the test ends."""
    relays: list[Started] = []

    def starter(*arguments: str, **options: Any) -> Started:
        relays.append(Started(tmp_path, *arguments, **options))
        return relays[-1]

    yield starter
    for relay in relays:
        print(relay.output())
        if relay.process.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                relay.stop()
        relay.process.kill()
        assert_none(relay.output())
        relay.process.wait()


# Federation: relays that know each other.

Trio = dict[str, FederatedRelay]


@pytest.fixture(scope="package")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Return the register of twins and the relays they list, for all federation tests."""
    found = World(tmp_path_factory.mktemp("world"))
    yield found
    found.close()


@pytest.fixture(scope="package")
def shared_trio(tmp_path_factory: pytest.TempPathFactory, world: World) -> Iterator[Trio]:
    """Start relays a, b and c, each with its own Redis and Celery workers."""
    with contextlib.ExitStack() as cleanup:
        relays = {}
        for name in RELAYS:
            folder = tmp_path_factory.mktemp(name)
            server = start_valkey(folder / "redis", append_fsync="no")
            cleanup.callback(server.remove)
            relays[name] = FederatedRelay(world, name, folder, server)
            cleanup.callback(relays[name].stop)
            relays[name].start(wait=False)
        for relay in relays.values():
            relay.wait_ready()
            relay.wait_federating()
        yield relays
        for relay in relays.values():
            if relay.alive:
                relay.ask_to_stop()  # all in parallel; `stop` waits for each one


@pytest.fixture
def trio(shared_trio: Trio) -> Trio:
    """Return the three shared relays, all running, with the record of partner failures cleared."""
    for relay in shared_trio.values():
        if not relay.store.running:
            relay.store.start()
        if not relay.alive:
            relay.start()
            relay.wait_federating()
        relay.reset_partners()
    return shared_trio


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    """Start a browser; every test opens its own tabs."""
    # Not imported at the top: few tests need it, and the import is slow.
    from tests.support.operator_browser import running_browser

    async with running_browser() as started:
        yield started

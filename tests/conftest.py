"""Fixtures shared by all tests: real Redis servers, whose database is empty when a test begins."""

from __future__ import annotations

import signal
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

from tests.support import collecting, in_memory, two_ends
from tests.support.postgres_server import PostgresServer
from tests.support.redis_servers import RedisServer, start_redis62, start_valkey

in_memory.use_memory_for_temporary_files()

# No deadlines: the speed and the load of the machine are not properties of the tested code.
# Each run has other examples, so many short runs find what a long one does; `make fuzz` is long.
hypothesis_settings.register_profile(
    "suite",
    hypothesis_settings(),
    max_examples=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
hypothesis_settings.load_profile("suite")

# A shell without job control starts background programs with SIGINT ignored, and their children
# inherit that: restore the default.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Collect the tests with less work (see `tests.support.collecting`)."""
    with collecting.without_garbage():
        collecting.import_share(session.config)
        return (yield)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the tests into the order in which the workers take them."""
    items.sort(key=lambda item: two_ends.place(item.nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> two_ends.TwoEnds | None:
    """Run end-to-end tests and others at the same time, if whole files are distributed."""
    return two_ends.TwoEnds(config, log) if config.getvalue("dist") == "loadfile" else None


def _session_server(
    tmp_path_factory: pytest.TempPathFactory, start: Callable[[Path], RedisServer]
) -> Iterator[RedisServer]:
    server = start(tmp_path_factory.mktemp("redis"))
    try:
        yield server
    finally:
        server.remove()


@pytest.fixture(scope="session")
def django_db_modify_db_settings(
    django_db_modify_db_settings: None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Use a database file, as a relay does.

    Threads would share a database in memory, in which a write fails while another thread reads.
    """
    from django.conf import settings

    file = tmp_path_factory.mktemp("database") / "test.sqlite3"
    settings.DATABASES["default"]["TEST"]["NAME"] = str(file)


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: Any) -> None:
    """Set the database up without the triggers of the audit log, which refuse to empty a table.

    Tests of the triggers migrate a database of their own.
    """
    from django.db import connection

    from relay.audit import triggers
    from tests.support import emptying, static_files

    emptying.quicken()
    static_files.look_once()
    with django_db_blocker.unblock():
        triggers.remove(None, SimpleNamespace(connection=connection))


@pytest.fixture(scope="session")
def valkey_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """Run one Valkey for the whole run; tests use `valkey`, which empties it first."""
    yield from _session_server(tmp_path_factory, start_valkey)


@pytest.fixture(scope="session")
def redis62_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """Run one Redis 6.2 for the whole run; tests use `redis62`, which empties it first."""
    yield from _session_server(tmp_path_factory, start_redis62)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """Run one PostgreSQL for the whole run; tests use `postgres`, and make their own databases."""
    server = PostgresServer()
    try:
        server.start()
        yield server
    finally:
        server.remove()


@pytest.fixture
def postgres(postgres_server: PostgresServer) -> PostgresServer:
    """Return the shared PostgreSQL; it is started again if a test has stopped it."""
    if not postgres_server.running:
        postgres_server.start()
    return postgres_server


@pytest.fixture
def valkey(valkey_server: RedisServer) -> RedisServer:
    """Return the shared Valkey, emptied. Tests that kill or pause a server start their own."""
    valkey_server.run("FLUSHALL")
    return valkey_server


@pytest.fixture
def redis62(redis62_server: RedisServer) -> RedisServer:
    """Return the shared Redis 6.2, emptied. Tests that kill or pause a server start their own."""
    redis62_server.run("FLUSHALL")
    return redis62_server


@pytest.fixture(params=["valkey", "redis62"])
def any_redis(request: pytest.FixtureRequest) -> RedisServer:
    """Run the test with each server in turn: the newest and the oldest supported."""
    server: RedisServer = request.getfixturevalue(request.param)
    return server

"""Fixtures shared by all tests: real Redis servers, each test with an empty database."""

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

# How fast the machine is, and what else it does, is no property of what is tested.
# Each run has other examples: many short runs find what a long one does, and `make fuzz` is long.
hypothesis_settings.register_profile(
    "suite",
    hypothesis_settings(),
    max_examples=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
hypothesis_settings.load_profile("suite")

# What a shell without job control runs in its background ignores Ctrl-C; children inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Collect with less work (`tests.support.collecting`)."""
    with collecting.without_garbage():
        collecting.import_share(session.config)
        return (yield)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests in the order from which workers take them."""
    items.sort(key=lambda item: two_ends.place(item.nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> two_ends.TwoEnds | None:
    """Run end-to-end tests and others at the same time, where whole files are handed out."""
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
    """A file, as in a relay. Threads share one in memory, where a writer fails beside a reader."""
    from django.conf import settings

    file = tmp_path_factory.mktemp("database") / "test.sqlite3"
    settings.DATABASES["default"]["TEST"]["NAME"] = str(file)


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: Any) -> None:
    """Without the triggers of the audit log: they refuse that a test's tables are emptied.

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
    """One Valkey for the whole run; tests take `valkey`, which empties it first."""
    yield from _session_server(tmp_path_factory, start_valkey)


@pytest.fixture(scope="session")
def redis62_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """One Redis 6.2 for the whole run; tests take `redis62`, which empties it first."""
    yield from _session_server(tmp_path_factory, start_redis62)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """One PostgreSQL for the whole run; tests take `postgres`, and databases of their own."""
    server = PostgresServer()
    try:
        server.start()
        yield server
    finally:
        server.remove()


@pytest.fixture
def postgres(postgres_server: PostgresServer) -> PostgresServer:
    """The shared PostgreSQL, which a test may stop."""
    if not postgres_server.running:
        postgres_server.start()
    return postgres_server


@pytest.fixture
def valkey(valkey_server: RedisServer) -> RedisServer:
    """The shared Valkey with an empty database. Tests that kill or pause start their own."""
    valkey_server.run("FLUSHALL")
    return valkey_server


@pytest.fixture
def redis62(redis62_server: RedisServer) -> RedisServer:
    """The shared Redis 6.2 with an empty database. Tests that kill or pause start their own."""
    redis62_server.run("FLUSHALL")
    return redis62_server


@pytest.fixture(params=["valkey", "redis62"])
def any_redis(request: pytest.FixtureRequest) -> RedisServer:
    """Both servers in turn: the newest and the oldest supported."""
    server: RedisServer = request.getfixturevalue(request.param)
    return server

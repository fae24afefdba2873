"""Concurrent operations in PostgreSQL, which SQLite would run one after the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest
from django.db import connection, transaction

from relay.access.actor import SYSTEM
from relay.access.models import FailedTries
from relay.access.sign_in import throttle
from relay.alarms import delivery, notice, receivers, rounds
from relay.alarms.models import Receiver
from relay.alarms.rules import BY_KEY
from tests.support.in_database import Use, in_database
from tests.support.postgres_server import PostgresServer

DATABASE: Final = "at_once"
TIMEOUT_S: Final = 60.0


@pytest.fixture(scope="module")
def url(postgres_server: PostgresServer) -> str:
    return postgres_server.make_migrated_database(DATABASE)


@pytest.fixture
def other(url: str) -> Iterator[psycopg.Connection]:
    """Open a connection for a concurrent transaction."""
    with psycopg.connect(url) as connected:
        yield connected


@pytest.fixture
def begin(url: str, tmp_path: Path, django_db_blocker: Any) -> Iterator[Callable[..., Any]]:
    """Return a function that runs an operation in another thread.

    The function returns once the operation is done or waits for a lock.
    """
    with (
        django_db_blocker.unblock(),
        in_database(url, tmp_path) as here,
        ThreadPoolExecutor(1) as threads,
        psycopg.connect(url, autocommit=True) as watcher,
    ):

        def start(act: Callable[[], Any]) -> Future[Any]:
            future = threads.submit(_there, here, act)
            deadline = time.monotonic() + TIMEOUT_S
            waits = "SELECT 1 FROM pg_stat_activity WHERE datname = %s AND wait_event_type = 'Lock'"
            while not future.done() and not watcher.execute(waits, [DATABASE]).fetchone():
                assert time.monotonic() < deadline
                time.sleep(0.01)
            return future

        yield start


def _there(here: Use, act: Callable[[], Any]) -> Any:
    here()
    try:
        return act()
    finally:
        connection.close()


def test_a_sign_in_while_another_was_right(
    begin: Callable[..., Any], other: psycopg.Connection
) -> None:
    """A sign-in counts correctly although a successful one removes the rows that both count in.

    Both come from one address, or are to one account.
    """
    keys = [throttle.key(throttle.ACCOUNT, "olga"), throttle.address_key("192.0.2.1")]
    assert throttle.take(keys) == 0
    other.execute(f"DELETE FROM {FailedTries._meta.db_table}")
    taking = begin(lambda: throttle.take(keys))
    assert not taking.done()
    other.commit()
    assert taking.result(TIMEOUT_S) == 0
    assert list(FailedTries.objects.values_list("failures", flat=True)) == [1, 1]


def test_a_sign_in_that_was_right_beside_others(
    begin: Callable[..., Any], other: psycopg.Connection
) -> None:
    """A successful sign-in that waits for one of its keys holds none of the others."""
    keys = sorted(throttle.key(rule, "olga") for rule in (throttle.ACCOUNT, throttle.BROWSER))
    assert throttle.take(keys) == 0
    table = FailedTries._meta.db_table
    for first, second in (keys, keys[::-1]):
        other.execute(f"SELECT 1 FROM {table} WHERE key = %s FOR UPDATE", [first.hash])
        giving = begin(lambda: throttle.give_back(keys))
        other.execute(f"SELECT 1 FROM {table} WHERE key = %s FOR UPDATE NOWAIT", [second.hash])
        other.rollback()
        giving.result(TIMEOUT_S)
        assert throttle.take(keys) == 0


def test_a_receiver_is_removed_while_it_is_to_be_told(begin: Callable[..., Any]) -> None:
    added = receivers.add_receiver("duty", "webhook", "https://127.0.0.1:1/", actor=SYSTEM)
    told = notice.document(notice.FIRED, BY_KEY["disk"], at=time.time(), domains=("a.example",))
    with transaction.atomic():
        rounds.held()
        found = rounds.hearers()
        removing = begin(lambda: receivers.remove_receiver(added.receiver.pk, actor=SYSTEM))
        assert delivery.enqueue(told, found) == 1
    removing.result(TIMEOUT_S)
    assert not Receiver.objects.exists()

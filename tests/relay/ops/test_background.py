"""Starting background tasks: refused with a reason if no worker takes them or Redis is down."""

from __future__ import annotations

import importlib
import logging
import threading
from collections.abc import Iterator

import pytest
from celery import Celery

from relay.ops import background, run_here
from relay.ops.redis_client import client
from rmbsite import broker
from tests.support.redis_servers import RedisServer
from tests.support.waiting import wait_until


@pytest.fixture
def full_redis(site_redis: RedisServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fill the memory of Redis, and make it the broker of the application.

    The application may have been imported before, with another broker.
    """
    application = importlib.import_module(background.APPLICATION)
    app = Celery("full", fixups=[], set_as_current=False)
    app.conf.update(
        **broker.settings_of(site_redis.url),
        task_queues=application.app.conf.task_queues,
        task_default_queue=background.DEFAULT,
        task_routes=application.app.conf.task_routes,
    )
    monkeypatch.setattr(application, "app", app)
    site_redis.run("CONFIG", "SET", "maxmemory", 1)
    yield
    site_redis.run("CONFIG", "SET", "maxmemory", 0)


def test_a_start_is_refused_when_nobody_works(
    site_redis: RedisServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "MAX_WAITING", 3)
    caplog.set_level(logging.WARNING)
    site_redis.run("RPUSH", f"{background.KEY_PREFIX}federation", "1", "2", "3")
    assert not background.start("federation.deliver", 3)
    assert "3 tasks wait in queue federation: does its Celery worker run?" in caplog.text


def test_a_start_without_redis_is_logged(no_redis: None, caplog: pytest.LogCaptureFixture) -> None:
    assert not background.start("federation.deliver", 3)
    assert "federation.deliver could not be started: " in caplog.text


def test_queues_without_a_worker_are_named(site_redis: RedisServer) -> None:
    assert background.queues_without_worker(client()) == ["federation", "chain", "default"]
    site_redis.run("SET", "relay:background:chain", "host 4711")
    assert background.queues_without_worker(client()) == ["federation", "default"]


def test_a_worker_that_ends_in_order_is_expected_back(
    site_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that stops cleanly counts for longer, as its successor takes time to start."""
    stopping = threading.Event()
    monkeypatch.setattr(background, "stopping", stopping)
    beat = threading.Thread(target=background._beat, args=(("chain",),))
    beat.start()
    wait_until(lambda: site_redis.run("EXISTS", "relay:background:chain"), 5)
    assert site_redis.run("TTL", "relay:background:chain") <= background.HEARTBEAT_LIFE_S
    stopping.set()
    beat.join()
    assert site_redis.run("TTL", "relay:background:chain") > background.HEARTBEAT_LIFE_S


def test_what_a_full_redis_does_not_take_is_run_here(
    full_redis: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[tuple[str, int]] = []
    end = threading.Event()

    def find(task: str) -> run_here.Body:
        def body(shard: int) -> None:
            begun.append((task, shard))
            end.wait()

        return body

    monkeypatch.setattr(run_here, "_find", [find])
    try:
        started = [background.start("federation.deliver", shard) for shard in (3, 4, 3)]
    finally:
        end.set()
        run_here.join()
    assert started == [True, True, False], "one of a kind at a time"
    assert begun == [("federation.deliver", 3), ("federation.deliver", 4)]
    assert background.start("federation.deliver", 3)
    run_here.join()
    assert len(begun) == 3


def test_a_task_that_fails_here_says_so(
    full_redis: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails() -> None:
        raise ValueError("so it is")

    monkeypatch.setattr(run_here, "_find", [lambda task: fails])
    assert background.start("federation.watch")
    run_here.join()
    assert "federation.watch failed, run here as redis is full: so it is" in caplog.text


def test_relay_workers_run_no_tasks(full_redis: None, caplog: pytest.LogCaptureFixture) -> None:
    assert not background.start("federation.deliver", 3)
    assert run_here.FULL in caplog.text

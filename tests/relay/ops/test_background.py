"""Starting background work: refused in words when nobody does it or Redis is away."""

from __future__ import annotations

import logging

import pytest

from relay.ops import background
from relay.ops.redis_client import client
from tests.support.redis_servers import RedisServer


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

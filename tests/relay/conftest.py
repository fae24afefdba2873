"""Fixtures of the Django side: settings that use a real Valkey, and heartbeats in it."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib.auth.hashers import PBKDF2PasswordHasher
from django.contrib.auth.models import Permission, User
from django.test import Client

from relay.queues import keys
from tests.support.redis_servers import RedisServer

AddWorker = Callable[..., str]


def use_redis(settings: Any, url: str) -> None:
    """Make the site's client and channel layer use the Redis at a URL."""
    settings.RMB = dataclasses.replace(
        settings.RMB, redis=dataclasses.replace(settings.RMB.redis, url=url)
    )
    layers = json.loads(json.dumps(settings.CHANNEL_LAYERS))
    for layer in layers.values():
        layer["CONFIG"]["hosts"] = [{"address": url, "socket_timeout": None}]
    settings.CHANNEL_LAYERS = layers


@pytest.fixture(scope="session", autouse=True)
def _quick_hasher() -> Iterator[None]:
    """Use the site's password hash with 2 iterations instead of those that take half a second."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PBKDF2PasswordHasher, "iterations", 2)
        yield


@pytest.fixture
def site_redis(valkey: RedisServer, settings: Any) -> RedisServer:
    """Make the site use an empty Valkey, and return it."""
    use_redis(settings, valkey.url)
    return valkey


@pytest.fixture
def no_redis(settings: Any) -> None:
    """Make the site use a Redis that does not answer."""
    use_redis(settings, "redis://127.0.0.1:1")


@pytest.fixture
def add_worker(site_redis: RedisServer) -> AddWorker:
    """Return a function that writes a worker's heartbeat.

    Call it as `add_worker("boot", slot="0", sessions=3)`.
    """

    def add(boot_id: str, metrics: dict[str, float] | None = None, **fields: Any) -> str:
        now = time.time()
        row = {
            "slot": "0",
            "pid": "4711",
            "host": "test",
            "started": str(now - 90),
            "heartbeat": str(now),
            "sessions": "0",
            "loop_lag_ms": "0.5",
            "state": "ok",
            "metrics": json.dumps(metrics or {}),
            **{name: str(value) for name, value in fields.items()},
        }
        pairs = [part for pair in row.items() for part in pair]
        site_redis.run("HSET", keys.worker(boot_id), *pairs)
        site_redis.run("SADD", keys.WORKERS, boot_id)
        return boot_id

    return add


@pytest.fixture
def admin_client(client: Client) -> Client:
    """Return a client that is signed in as an owner."""
    client.force_login(User.objects.create_superuser("admin"))
    return client


@pytest.fixture
def viewer(client: Client) -> Client:
    """Return a client that is signed in with view permissions only."""
    user = User.objects.create_user("viewer", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__startswith="view_"))
    client.force_login(user)
    return client

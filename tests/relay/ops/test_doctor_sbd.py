"""The doctor's checks of SBD, each with a set-up that is broken in one way."""

from __future__ import annotations

import resource
import socket
from typing import Any

import pytest

from relay.access.actor import SYSTEM
from relay.limits import sbd
from relay.ops.doctor import Level
from tests.relay.conftest import AddWorker
from tests.relay.ops.test_doctor import configured, examine, sound
from tests.support.redis_servers import RedisServer, free_port

__all__ = ["sound"]

pytestmark = pytest.mark.django_db


@pytest.fixture
def serving(sound: RedisServer, add_worker: AddWorker, settings: Any) -> RedisServer:
    """Set up a sound relay that serves SBD."""
    configured(settings, "sbd", enabled=True, max_clients=10)
    add_worker("boot", {"sbd_connections": 0, "mux_connections": 0}, host=socket.gethostname())
    return sound


def test_all_is_well(serving: RedisServer, settings: Any) -> None:
    assert examine() == {}
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        url = f"http://127.0.0.1:{port}/authenticate"
        configured(settings, "sbd", hook_url=url, listen=(f"127.0.0.1:{port}",))
        assert examine() == {}


def test_sbd_is_off(sound: RedisServer, settings: Any) -> None:
    hook = "http://127.0.0.1:1/"
    configured(settings, "sbd", enabled=False, max_clients=1 << 30, hook_url=hook, listen=("x",))
    assert examine() == {}


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("http://user:secret@127.0.0.1:1/x", "127.0.0.1:1 does not answer"),
        ("https://hook.invalid/", "hook.invalid:443 does not answer"),
        ("http:///authenticate", "names no host"),
        ("http://hook:port/", "an invalid port"),
    ],
)
def test_a_hook_server_that_is_away(
    serving: RedisServer, settings: Any, url: str, text: str
) -> None:
    configured(settings, "sbd", hook_url=url)
    found = examine()["sbd.hook"]
    assert found.level is Level.FAULT and text in found.text and "no client gets" in found.text
    assert "secret" not in found.text and found.remedy


def test_workers_that_do_not_serve_it(
    serving: RedisServer, add_worker: AddWorker, settings: Any
) -> None:
    add_worker("older", slot="3")
    found = examine()["sbd.workers"]
    assert "these workers do not serve SBD: test/3" in found.text and "restart" in found.remedy


def test_a_listener_that_is_closed(serving: RedisServer, settings: Any) -> None:
    place = f"127.0.0.1:{free_port()}"
    configured(settings, "sbd", listen=(place,))
    assert f"nothing answers at {place}" in examine()["sbd.listener"].text
    configured(settings, "sbd", listen=("nowhere",))
    assert "has no port" in examine()["sbd.listener"].text


def test_more_clients_than_open_files(serving: RedisServer, settings: Any) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    configured(settings, "sbd", max_clients=hard)
    found = examine()["sbd.open-files"]
    assert f"{hard - 1064:,} SBD connections fit, not the {hard:,}" in found.text
    assert f"LimitNOFILE={hard + 1064}" in found.remedy


def test_limits_that_exclude_each_other(serving: RedisServer, settings: Any) -> None:
    sbd.set_limit("2001:db8::7", 800, actor=SYSTEM)
    assert examine() == {}
    configured(settings, "sbd", ipv6_prefix=64)
    assert "limits of 2001:db8::7 have no effect" in examine()["sbd.limits"].text
    sbd.set_limit("192.0.2.7", 800, actor=SYSTEM)
    configured(settings, "sbd", ipv6_prefix=128, receiver_bytes=100_000)
    assert "less than sbd.limit_burst_bytes" in examine()["sbd.limits"].text
    configured(settings, "sbd", limit_kbit_per_s=8_000_001)
    assert "above 8,000,000 there is no limit" in examine()["sbd.limits"].text

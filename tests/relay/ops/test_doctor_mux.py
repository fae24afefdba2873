"""The doctor's checks of streams, each with a set-up that is broken in one way."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from relay.ops.doctor import Level
from tests.relay.conftest import AddWorker
from tests.relay.ops.test_doctor import configured, examine, sound
from tests.support.redis_servers import RedisServer, free_port

__all__ = ["sound"]

pytestmark = pytest.mark.django_db


def test_workers_and_listeners(sound: RedisServer, add_worker: AddWorker, settings: Any) -> None:
    assert examine() == {}
    add_worker("older", slot="3")
    place = f"127.0.0.1:{free_port()}"
    configured(settings, "mux", listen=(place,))
    assert "these workers do not serve streams: test/3" in examine()["mux.workers"].text
    add_worker("boot", {"mux_connections": 0}, host=socket.gethostname())
    found = examine()["mux.listener"]
    assert found.level is Level.FAULT
    assert found.text == f"nothing answers at {place}, an address of mux.listen"
    configured(settings, "mux", enabled=False)
    assert not {"mux.workers", "mux.listener"} & examine().keys()


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"max_streams": 20_000}, "200 times a second: a full connection needs 100 s"),
        ({"stream_bytes": 2 << 20, "connection_bytes": 1 << 20}, "more than mux.connection_bytes"),
        ({"buffered_bytes": 1 << 20}, "more than mux.buffered_bytes, 1,048,576"),
    ],
)
def test_limits_that_exclude_each_other(
    sound: RedisServer, settings: Any, changes: dict[str, int], text: str
) -> None:
    configured(settings, "mux", **changes)
    found = examine()["mux.limits"]
    assert found.level is Level.WARNING and text in found.text and found.remedy
    configured(settings, "mux", enabled=False)
    assert examine() == {}

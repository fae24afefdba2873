"""The recorder's threads: one second each, by one of several sites, whatever goes away."""

from __future__ import annotations

import time

import pytest

from relay.history import seconds
from relay.history.recorder import Recorder
from relay.ops.redis_client import client
from tests.relay.conftest import AddWorker
from tests.support.redis_servers import RedisServer

pytestmark = pytest.mark.django_db


def clock_of_redis() -> int:
    return int(client().time()[0])


def test_one_of_two_sites_writes_a_second(site_redis: RedisServer, add_worker: AddWorker) -> None:
    add_worker("boot", sessions=3)
    first, second = Recorder(), Recorder()
    written = first.record()
    assert written is not None
    at, values = written
    assert abs(at - clock_of_redis()) <= 1
    assert values["sessions"] == 3
    while clock_of_redis() == at and second.record() is None:
        pass
    # Whichever second it is by now: each is written once.
    found = [second for second, _ in seconds.read(client(), at - 5, at + 5)]
    assert found == sorted(set(found)) and found[0] == at


def test_a_clock_that_was_set_back_is_noticed(site_redis: RedisServer) -> None:
    seconds.put(client(), int(time.time()) + 5000, {"sessions": 1})
    recorder = Recorder()
    assert recorder.record() is None
    assert recorder.record() is not None

"""Background work run by `runrelay`: two Celery children, watched, replaced, stopped in time."""

from __future__ import annotations

import json
import signal
from typing import Any

from tests.support.children import children
from tests.support.redis_servers import RedisServer
from tests.support.started import (
    START_TIMEOUT_S,
    STOP_TIMEOUT_S,
    Started,
    embedded,
    exists,
    get,
    plain,
)
from tests.support.waiting import eventually


def celery_pids(relay: Started) -> set[int]:
    """Return the process ids of the Celery children."""
    found = children("relay.server.celery_main", relay.process.pid, recursive=True)
    return {each.pid for each in found}


async def at_work(relay: Started, admin_url: str) -> None:
    """Wait until the operator site reports that every queue has a worker."""

    async def served() -> bool:
        status, body = await get(admin_url + "/ready")
        return status == 200 and json.loads(body)["degraded"] == []

    await eventually(served, START_TIMEOUT_S, "every queue has a worker")


async def test_an_embedded_relay_works_in_the_background(start: Any) -> None:
    relay = await start(*embedded(), celery=True).ready()
    assert "celery    two workers of its own" in relay.output()
    await at_work(relay, relay.runtime()["admin_url"])
    before = celery_pids(relay)
    assert len(before) == 2
    relay.process.send_signal(signal.SIGHUP)
    await eventually(lambda: "rolling restart done" in relay.output(), START_TIMEOUT_S)
    await eventually(lambda: len(celery_pids(relay) - before) == 2, START_TIMEOUT_S)
    below = relay.descendants()
    assert relay.stop() == 0
    assert not any(map(exists, below))
    for word in ("ERROR", "Traceback", "Security"):
        assert word not in relay.output()


async def test_background_work_ends_with_a_killed_supervisor(start: Any) -> None:
    relay = await start(*embedded(), celery=True).ready()
    await at_work(relay, relay.runtime()["admin_url"])
    below = relay.descendants()
    relay.process.kill()
    relay.process.wait()
    await eventually(lambda: not any(map(exists, below)), STOP_TIMEOUT_S)


async def test_a_relay_may_leave_background_work_to_others(start: Any, valkey: RedisServer) -> None:
    relay = await start(*plain(valkey.url)).ready()
    assert "celery    none of its own: federation and the chain wait for" in relay.output()
    assert celery_pids(relay) == set()

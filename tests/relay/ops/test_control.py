"""`relay.ops.control`: the fields of `relay:control`, which are always written as a whole."""

from __future__ import annotations

import pytest

from relay.ops import control
from relay.queues import keys
from tests.relay.conftest import AddWorker
from tests.support.redis_servers import RedisServer


def fields(server: RedisServer) -> dict[str, str]:
    flat = server.run("HGETALL", keys.CONTROL)
    if isinstance(flat, dict):
        return {name.decode(): value.decode() for name, value in flat.items()}
    return dict(zip(*[iter(part.decode() for part in flat)] * 2, strict=True))


def test_kick_names_the_connection_that_is_meant(site_redis: RedisServer) -> None:
    control.kick("7:phone", 123, "by hand")
    assert fields(site_redis) == {"version": "1", "kick:7:phone": "123|by hand"}
    control.kick("7:phone", 124, "x" * 500)
    written = fields(site_redis)
    assert written["version"] == "2"
    assert written["kick:7:phone"] == "124|" + "x" * control.MAX_REASON_CHARS


def test_old_kicks_leave_with_a_later_one(
    site_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    control.kick("7", 1)
    control.kick("8", 1)
    assert {"kick:7", "kick:8"} <= set(fields(site_redis))
    monkeypatch.setattr(control, "KICK_LIFE_S", -1)
    control.kick("9", 1)
    assert set(fields(site_redis)) == {"version", "kick:9"}


def test_drain_forgets_workers_that_are_gone(
    site_redis: RedisServer, add_worker: AddWorker
) -> None:
    add_worker("old")
    control.drain("old")
    site_redis.run("DEL", keys.worker("old"))
    add_worker("new")
    control.drain("new")
    assert fields(site_redis) == {"version": "2", "drain:new": "1"}


def test_replace_touches_its_prefixes_only(site_redis: RedisServer) -> None:
    control.change({"ban:1": "a", "limit:1": "1 2", "limit": "3 4", "kick:1": "5|x"})
    control.replace(("ban:", "limit:"), {"ban:2": "b"})
    expected = {"version": "2", "ban:2": "b", "limit": "3 4", "kick:1": "5|x"}
    assert fields(site_redis) == expected
    control.replace(("ban:", "limit:"), {"ban:2": "b"})
    assert fields(site_redis) == expected, "nothing differs: no news for the workers"


async def test_workers_are_nudged(site_redis: RedisServer) -> None:
    from asgiref.sync import sync_to_async
    from channels.layers import get_channel_layer

    layer = get_channel_layer()
    assert layer is not None
    channel = await layer.new_channel()
    await layer.group_add(control.GROUP, channel)
    await sync_to_async(control.change)({"limit": "1 2"})
    assert await layer.receive(channel) == control.CHANGED
    await layer.close_pools()


@pytest.mark.usefixtures("no_redis")
def test_without_redis_the_operator_is_told() -> None:
    for call in (
        lambda: control.kick("7", 1),
        lambda: control.drain("x"),
        lambda: control.change({}),
        lambda: control.replace((), {}),
    ):
        with pytest.raises(control.ControlError, match="could not be told"):
            call()

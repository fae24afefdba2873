"""Events of a trace, streamed over REST as they occur."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.test import AsyncClient

from relay.access.actor import SYSTEM
from relay.queues import keys
from relay.trace import live, services
from relay.trace.events import Stage
from tests.relay.rest.conftest import account, token_of
from tests.relay.trace.test_services import note
from tests.support.redis_servers import RedisServer
from tests.support.waiting import eventually

# The stream reads the database from a thread of its own.
pytestmark = pytest.mark.django_db(transaction=True)


async def read(body: Any) -> dict[str, str]:
    """Return the next event; skip comments."""
    async with asyncio.timeout(60):
        while True:
            text = (await anext(body)).decode()
            lines = [line.partition(": ") for line in text.strip().split("\n")]
            found = {name: value for name, _, value in lines if name}
            if "event" in found:
                return found


async def test_from_the_first_event_to_the_end(site_redis: RedisServer) -> None:
    def prepare() -> tuple[str, str]:
        row = services.start("twin", "7", actor=SYSTEM)
        note(site_redis, row.id, Stage.ACCEPTED, Stage.COMMITTED)
        return row.id, token_of(account("viewer", "viewer"), role="viewer")

    trace, token = await sync_to_async(prepare)()
    headers = {"authorization": f"Bearer {token}"}
    path = f"/api/v1/traces/{trace}/live"
    answer = await AsyncClient().get(path, headers=headers)
    assert answer.status_code == 200 and answer["Content-Type"] == "text/event-stream"
    body = aiter(answer)
    first, second = await read(body), await read(body)
    stages = [json.loads(each["data"])["stage"] for each in (first, second)]
    assert stages == ["accepted", "committed"]
    await sync_to_async(note)(site_redis, trace, Stage.DELIVERED)
    third = await read(body)
    assert json.loads(third["data"])["stage"] == "delivered"
    await sync_to_async(services.stop)(trace, actor=SYSTEM)
    end = await read(body)
    assert end["event"] == "end" and json.loads(end["data"])["state"] == "stopped"
    assert [chunk async for chunk in body] == []
    resumed = {**headers, "last-event-id": second["id"]}
    again = await AsyncClient().get(path, headers=resumed)
    rest = aiter(again)
    assert (await read(rest))["id"] == third["id"]
    assert (await read(rest))["event"] == "end"
    missing = await AsyncClient().get("/api/v1/traces/nothing/live", headers=headers)
    assert missing.status_code == 404


async def test_the_database_rests_while_events_come(
    site_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stream reads the record only at the start and when the order is gone from Redis."""

    def prepare() -> tuple[str, str]:
        row = services.start("twin", "7", actor=SYSTEM)
        note(site_redis, row.id, Stage.ACCEPTED)
        return row.id, token_of(account("viewer", "viewer"), role="viewer")

    looks: list[str] = []
    find = services.find

    def counted(order_id: str) -> Any:
        looks.append(order_id)
        return find(order_id)

    trace, token = await sync_to_async(prepare)()
    monkeypatch.setattr(services, "find", counted)
    monkeypatch.setattr(live, "BLOCK_MS", 10)
    answer = await AsyncClient().get(
        f"/api/v1/traces/{trace}/live", headers={"authorization": f"Bearer {token}"}
    )
    body = aiter(answer)
    assert (await read(body))["event"] == "event"
    following = asyncio.ensure_future(read(body))

    def asked() -> int:
        return int(site_redis.run("INFO", "commandstats")["cmdstat_hexists"]["calls"])

    waits = asked()
    await eventually(lambda: asked() > waits + 10, 10, "waits that end without an event")
    note(site_redis, trace, Stage.DELIVERED)
    assert json.loads((await following)["data"])["stage"] == "delivered"
    assert looks == [trace]
    await sync_to_async(site_redis.run)("HDEL", keys.CONTROL, f"trace:{trace}")
    assert json.loads((await read(body))["data"])["state"] == "off"
    assert len(looks) > 1


@pytest.mark.parametrize("last", ["x", "1-", "-1", "18446744073709551616-0", "1-2-3"])
async def test_what_is_no_cursor_is_refused_before_the_stream(
    site_redis: RedisServer, last: str
) -> None:
    def prepare() -> tuple[str, str]:
        row = services.start("twin", "7", actor=SYSTEM)
        return row.id, token_of(account("viewer", "viewer"), role="viewer")

    trace, token = await sync_to_async(prepare)()
    headers = {"authorization": f"Bearer {token}", "last-event-id": last}
    for path in (f"/api/v1/traces/{trace}/live", "/api/v1/alarms/events"):
        answer = await AsyncClient().get(path, headers=headers)
        assert answer.status_code == 422, path
        assert answer.json()["errors"][0]["field"] == "header.Last-Event-ID"


async def test_a_stream_ends_when_its_source_is_away(site_redis: RedisServer) -> None:
    def prepare() -> tuple[str, str]:
        row = services.start("twin", "7", actor=SYSTEM)
        note(site_redis, row.id, Stage.ACCEPTED)
        return row.id, token_of(account("viewer", "viewer"), role="viewer")

    trace, token = await sync_to_async(prepare)()
    answer = await AsyncClient().get(
        f"/api/v1/traces/{trace}/live", headers={"authorization": f"Bearer {token}"}
    )
    body = aiter(answer)
    assert (await read(body))["event"] == "event"
    await asyncio.to_thread(site_redis.stop)
    try:
        async with asyncio.timeout(60):
            assert [chunk async for chunk in body] == []
    finally:
        await asyncio.to_thread(site_redis.start)

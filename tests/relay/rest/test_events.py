"""Streams of server-sent events: their number, their duration, and their readers."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import re
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, cast

import pytest
from asgiref.sync import sync_to_async
from django.contrib.sessions.backends.db import SessionStore
from django.http import StreamingHttpResponse
from django.test import AsyncClient, AsyncRequestFactory, Client, RequestFactory
from django.utils import timezone

from relay.access import accounts, services
from relay.access.actor import SYSTEM
from relay.access.models import ApiToken
from relay.rest import caller, events
from tests.relay.rest.conftest import account, token_of
from tests.support.redis_servers import RedisServer
from tests.support.waiting import eventually

# Streams read the database from threads of their own.
pytestmark = pytest.mark.django_db(transaction=True)

PATH = "/api/v1/alarms/events"
ALIVE = b": alive\n\n"
SOON_S = 0.05
"""Seconds between heartbeats of streams in these tests; elsewhere 15 s."""


class Source:
    """A source of events that a test controls."""

    def __init__(self) -> None:
        self.happens: asyncio.Queue[events.Event] = asyncio.Queue()
        self.ended = False

    async def feed(self, last: str) -> AsyncIterator[events.Event]:
        try:
            while True:
                yield await self.happens.get()
        finally:
            self.ended = True


async def open_stream(source: Source, **times: float) -> AsyncGenerator[Any, None]:
    """Open a stream of alarms for a new viewer with a token."""

    def prepare() -> Any:
        token = token_of(account("viewer", "viewer"), role="viewer")
        headers = {"authorization": f"Bearer {token}"}
        request: Any = AsyncRequestFactory().get(PATH, headers=headers)
        request.session = SessionStore()
        request.caller = caller.identify(request)
        return request

    request = await sync_to_async(prepare)()
    answer = await events.stream(
        request, "alarm.view", source.feed, ids=re.compile("[0-9]+"), **times
    )
    assert isinstance(answer, StreamingHttpResponse) and answer["X-Accel-Buffering"] == "no"
    body = cast(AsyncGenerator[Any, None], aiter(answer))
    assert await anext(body) == b"retry: 2000\n\n"
    return body


async def rest_of(body: AsyncIterator[bytes]) -> list[bytes]:
    async with asyncio.timeout(10):
        return [chunk async for chunk in body]


async def test_it_says_that_it_lives_while_nothing_happens() -> None:
    source = Source()
    body = await open_stream(source, heartbeat_s=SOON_S)
    async with asyncio.timeout(10):
        assert [await anext(body), await anext(body)] == [ALIVE, ALIVE]
        source.happens.put_nowait(events.Event("7", "fired", {"a": 1}))
        while (chunk := await anext(body)) == ALIVE:
            continue
    assert chunk == b'id: 7\nevent: fired\ndata: {"a":1}\n\n'
    await body.aclose()
    await eventually(lambda: source.ended and not events._open)


async def test_it_ends_after_its_time() -> None:
    source = Source()
    body = await open_stream(source, heartbeat_s=SOON_S, longest_s=3 * SOON_S)
    assert set(await rest_of(body)) == {ALIVE}
    assert source.ended and not events._open


@pytest.mark.parametrize("busy", [True, False])
@pytest.mark.parametrize("what", ["revoked", "role", "account"])
async def test_it_ends_with_the_permission(busy: bool, what: str) -> None:
    """A stream without permission ends at the next heartbeat, whether or not events occur."""
    source = Source()
    body = await open_stream(source, heartbeat_s=SOON_S)

    def end() -> None:
        found = ApiToken.objects.get()
        if what == "revoked":
            ApiToken.objects.update(revoked=timezone.now())
        elif what == "role":
            found.account.groups.clear()
        else:
            found.account.is_active = False
            found.account.save()

    async def keep_happening() -> None:
        while not source.ended:
            source.happens.put_nowait(events.Event("7", "fired", {}))
            await asyncio.sleep(SOON_S / 10)

    happening = asyncio.ensure_future(keep_happening()) if busy else None
    await anext(body)
    await sync_to_async(end)()
    await rest_of(body)
    assert source.ended
    if happening is not None:
        await happening


@pytest.mark.parametrize("what", ["token", "role"])
async def test_it_ends_within_a_second_of_the_right(what: str) -> None:
    source = Source()
    body = await open_stream(source)

    def end() -> None:
        token = ApiToken.objects.get()
        if what == "token":
            services.revoke_token(token.public_id, actor=SYSTEM)
        else:
            accounts.change_account(token.account.pk, groups=(), actor=SYSTEM)

    reading = asyncio.ensure_future(rest_of(body))
    await asyncio.sleep(0)
    await sync_to_async(end)()
    async with asyncio.timeout(2):  # one second, and a margin for a busy machine
        assert await reading == []
    assert source.ended


def test_a_session_goes_on_by_the_rules_of_pages(settings: Any) -> None:
    client = Client()
    client.force_login(account("viewer", "viewer"))
    request: Any = RequestFactory().get(PATH)
    request.session = client.session
    assert caller.identify_again(request) is not None
    access = dataclasses.replace(settings.RMB.access, require_totp=("viewer",))
    settings.RMB = dataclasses.replace(settings.RMB, access=access)
    assert caller.identify_again(request) is None, "its second factor was taken away"


async def test_one_reader_has_so_many_and_no_more(
    site_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "MAX_STREAMS_OF_ONE", 2)
    monkeypatch.setattr(events, "MAX_STREAMS", 3)

    def tokens() -> list[str]:
        user = account("viewer", "viewer")
        return [token_of(user, role="viewer") for _ in range(3)]

    one, two, three = await sync_to_async(tokens)()

    async def ask(token: str) -> Any:
        return await AsyncClient().get(PATH, headers={"authorization": f"Bearer {token}"})

    async def reader(token: str) -> asyncio.Task[list[bytes]]:
        answer = await ask(token)
        assert answer.status_code == 200, answer.content
        body = aiter(answer)
        await anext(body)
        return asyncio.ensure_future(rest_of(body))

    async def go(reading: asyncio.Task[list[bytes]]) -> None:
        """End a stream as the server does when a reader has gone."""
        await asyncio.sleep(0)  # lets it start reading
        reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await reading

    readers = [await reader(one), await reader(one)]
    refused = await ask(one)
    assert (refused.status_code, refused["Retry-After"]) == (429, "5")
    assert refused.json()["detail"] == "too many streams are open"
    readers.append(await reader(two))
    assert (await ask(three)).status_code == 429, "all places are taken"
    await go(readers.pop(0))
    readers.append(await reader(three))
    assert events._open.total() == 3
    for each in readers:
        await go(each)
    assert not events._open

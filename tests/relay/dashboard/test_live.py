"""A live socket of the console from opening to end, against the application itself."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import Group, User
from django.contrib.sessions.models import Session
from django.db import OperationalError
from django.test import Client

from relay.access import accounts
from relay.access.actor import SYSTEM
from relay.dashboard import admittance, live
from relay.dashboard.admittance import NOT_ALLOWED, SIGNED_OUT
from relay.dashboard.feed import Feed
from relay.dashboard.live import STUCK, UNSURE, sockets
from tests.relay.alarms.conftest import configure
from tests.support.redis_servers import RedisServer
from tests.support.waiting import eventually

pytestmark = pytest.mark.django_db(transaction=True)

WITHIN_S = 60.0
WITHIN_A_SECOND_S = 2.0  # one second, and a margin for a busy machine
HOST = b"127.0.0.1:8081"


class Page:
    """A page that has opened the socket, and the messages received at the speed it takes them."""

    def __init__(self, key: str) -> None:
        self.told: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.offered = 0
        self.takes = asyncio.Event()
        self.takes.set()
        self._says: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._says.put_nowait({"type": "websocket.connect"})
        headers = [(b"host", HOST), (b"origin", b"http://" + HOST)]
        headers.append((b"cookie", f"rmb_operator={key}".encode()))
        scope = {"type": "websocket", "path": live.PATH, "headers": headers}
        self.task = asyncio.create_task(live.application(scope, self._says.get, self._take))

    async def _take(self, message: dict[str, Any]) -> None:
        self.offered += 1
        await self.takes.wait()
        self.told.put_nowait(message)

    async def next(self) -> dict[str, Any]:
        return await asyncio.wait_for(self.told.get(), WITHIN_S)

    async def text(self) -> str:
        return str((await self.next())["text"])

    async def ended(self) -> Any:
        """Return the code with which the socket was closed."""
        while (message := await self.next())["type"] != "websocket.close":
            pass
        await asyncio.wait_for(self.task, WITHIN_S)
        return message["code"]

    def leave(self) -> None:
        self._says.put_nowait({"type": "websocket.disconnect", "code": 1001})


def sign_in() -> str:
    user = User.objects.create_user("viola", is_staff=True)
    user.groups.add(Group.objects.get(name="viewer"))
    client = Client()
    client.force_login(user)
    return client.cookies["rmb_operator"].value


@contextlib.asynccontextmanager
async def opened() -> AsyncIterator[Page]:
    """Yield a page whose socket is open and has received a frame."""
    page = Page(await sync_to_async(sign_in)())
    try:
        assert (await page.next())["type"] == "websocket.accept"
        await until(lambda: live.feed._listeners)
        live.feed.publish("first")
        assert await page.text() == "first"
        yield page
    finally:
        page.takes.set()
        page.leave()
        await asyncio.wait_for(page.task, WITHIN_S)
    assert not sockets.open and not sockets.accounts


async def until(check: Callable[[], Any]) -> None:
    await eventually(check, WITHIN_S)


@pytest.fixture(autouse=True)
def quickly(site_redis: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "CHECK_S", 0.05)
    monkeypatch.setattr(live, "feed", Feed())


async def test_one_that_is_slow_gets_the_newest() -> None:
    async with opened() as page:
        page.takes.clear()
        offered = page.offered
        live.feed.publish("a")
        await until(lambda: page.offered > offered)
        live.feed.publish("b")
        live.feed.publish("c")
        page.takes.set()
        assert [await page.text(), await page.text()] == ["a", "c"]


async def test_one_that_takes_nothing_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "STUCK_S", 0.05)
    async with opened() as page:
        page.takes.clear()
        live.feed.publish("a")
        before = sockets.ended[STUCK]
        await until(lambda: sockets.ended[STUCK] > before)
        page.takes.set()
        assert await page.ended() == STUCK


async def test_what_ends_with_the_session() -> None:
    async with opened() as page:
        await Session.objects.all().adelete()
        assert await page.ended() == SIGNED_OUT


@pytest.mark.parametrize("what", ["role", "account", "signed out"])
async def test_it_ends_within_a_second_of_the_right(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "CHECK_S", 60.0)

    def end() -> None:
        user = User.objects.get()
        if what == "role":
            accounts.change_account(user.pk, groups=(), actor=SYSTEM)
        elif what == "account":
            accounts.change_account(user.pk, is_active=False, actor=SYSTEM)
        else:
            client = Client()
            client.cookies["rmb_operator"] = Session.objects.get().session_key
            client.post("/admin/logout/")

    async with opened() as page:
        await sync_to_async(end)()
        async with asyncio.timeout(WITHIN_A_SECOND_S):
            assert await page.ended() == (NOT_ALLOWED if what == "role" else SIGNED_OUT)


async def test_a_second_factor_that_is_demanded(settings: Any) -> None:
    async with opened() as page:
        configure(settings, "access", require_totp=("viewer",))
        assert await page.ended() == NOT_ALLOWED


async def test_while_the_database_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """An allowed socket stays open for a while when the database is unavailable."""
    asked = []

    def away(key: str) -> Any:
        asked.append(key)
        raise OperationalError("the database is away")

    async with opened() as page:
        monkeypatch.setattr(live, "judge_async", admittance.database_sync_to_async(away))
        await until(lambda: len(asked) > 1)
        live.feed.publish("still here")
        assert await page.text() == "still here"
        monkeypatch.setattr(live, "UNSURE_S", 0.0)
        assert await page.ended() == UNSURE
    late = Page("x" * 32)
    assert await late.ended() == UNSURE

"""Rates under steady load: what REST and the overview show, how soon, and in which order."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import re
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from relay.sessions.rates import WINDOW_S
from tests.e2e.conftest import StartRelay
from tests.support.operator_site import OPERATOR, OperatorSite
from tests.support.relay_process import run_command
from tests.support.rmb_client import RmbClient, session
from tests.support.waiting import eventually
from tests.support.world import fresh_twins

SHOWN_WITHIN_S = 5.0
RIGHT = 0.2
PAUSE_S = 0.02
SIGN_IN = f"""
from django.contrib.auth.models import User
from django.test import Client
client = Client()
client.force_login(User.objects.get(username="{OPERATOR}"))
print(client.cookies["rmb_operator"].value)
"""
BUSIEST = re.compile(r'href="/console/twins/(\d+)/".*?<data class="c-figure" value="([\d.]+)"')


@contextlib.asynccontextmanager
async def steady(sender: RmbClient, to: tuple[int, str | None], per_s: int) -> AsyncIterator[None]:
    """Send the given number of messages a second while the context is open."""

    async def send() -> None:
        began, sent = time.monotonic(), 0
        while True:
            for _ in range(int((time.monotonic() - began) * per_s) - sent):
                await sender.request(to, bytes(100))
                sent += 1
            await asyncio.sleep(PAUSE_S)

    sending = asyncio.create_task(send())
    try:
        yield
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)


def near(found: float, wanted: float) -> bool:
    return abs(found - wanted) <= RIGHT * wanted


async def test_rates_are_right_within_five_seconds(start_relay: StartRelay) -> None:
    relay = start_relay(operator_site=True, processes=2)
    site = OperatorSite(relay)
    signed_in = run_command(
        relay.folder, "shell", "-v", "0", "-c", SIGN_IN, settings=relay.settings
    )
    cookie = signed_in.stdout.strip()

    def items(path: str, order: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = site.ask("GET", f"{path}?order={order}").json()["items"]
        return found

    def overview() -> list[tuple[int, float]]:
        connection = http.client.HTTPConnection("127.0.0.1", relay.admin_port, timeout=20)
        headers = {"Cookie": f"rmb_operator={cookie}", "HX-Target": "around"}
        connection.request("GET", "/console/", headers=headers)
        text = connection.getresponse().read().decode().partition("Busiest twins")[2]
        connection.close()
        return [(int(twin), float(rate)) for twin, rate in BUSIEST.findall(text)]

    busy, idle, slow, taker = fresh_twins(4)
    rate = {busy.id: 60, slow.id: 20}

    def sessions_right() -> bool:
        rates = {each["twin"]: each for each in items("/sessions", "-rate_in")}
        return (
            list(rates)[:2] == [busy.id, slow.id]
            and all(near(rates[twin]["rate_in"], rate[twin]) for twin in rate)
            and near(rates[taker.id]["rate_out"], rate[busy.id])
            and items("/sessions", "-rate_out")[0]["twin"] == taker.id
        )

    def twins_right() -> bool:
        rates = {each["id"]: each["rate_in"] for each in items("/twins", "-rate_in")[:2]}
        return list(rates) == [busy.id, slow.id] and all(
            near(rates[each], rate[each]) for each in rate
        )

    def queues_right() -> bool:
        first = items("/queues", "-rate_in&connected=false")[:1]
        return (
            bool(first) and first[0]["key"] == f"{idle.id}:away" and near(first[0]["rate_in"], 20)
        )

    def overview_right() -> bool:
        found = overview()
        return (
            {twin for twin, _ in found[:2]} == {busy.id, taker.id}
            and found[2][0] == slow.id
            and all(near(each, rate.get(twin, rate[busy.id])) for twin, each in found)
        )

    checks: tuple[Callable[[], bool], ...] = (
        sessions_right, twins_right, queues_right, overview_right,
    )  # fmt: skip
    async with (
        session(relay.url, busy) as one,
        session(relay.url, slow, "phone") as two,
        session(relay.url, taker) as three,
        session(relay.url, idle),
    ):
        await eventually(lambda: len(items("/sessions", "-opened")) == 4)

        async def take() -> None:
            while True:
                await three.receive()

        taking = asyncio.create_task(take())
        async with (
            steady(one, (taker.id, None), rate[busy.id]),
            steady(two, (idle.id, "away"), rate[slow.id]),
        ):
            began = time.monotonic()
            for check in checks:
                left_s = began + SHOWN_WITHIN_S - time.monotonic()
                await eventually(
                    lambda check=check: asyncio.to_thread(check), left_s, check.__name__
                )
        taking.cancel()
        await asyncio.gather(taking, return_exceptions=True)
        await eventually(lambda: not overview(), 2 * WINDOW_S + 1, "idle")
        assert [each["rate_in"] for each in items("/sessions", "-rate_in")] == [0, 0, 0, 0]

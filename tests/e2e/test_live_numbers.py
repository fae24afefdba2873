"""`/console/live` of a real operator site: frames while messages flow, and who may receive them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest
import websockets
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, InvalidStatus

from relay.dashboard.admittance import NOT_ALLOWED, SIGNED_OUT
from relay.dashboard.live import CHECK_S, MAX_PER_ACCOUNT, NOT_ASKED, TOO_MANY
from tests.support.relay_process import RelayProcess, run_command
from tests.support.rmb_client import session
from tests.support.world import fresh_twins

FRAME_WITHIN_S = 10.0
ACCOUNTS = ("stays", "leaves", "disabled", "demoted", "nobody", "many")
MAKE_ACCOUNTS = f"""
import json
from django.contrib.auth.models import Group, User
from django.test import Client
keys = {{}}
for name in {ACCOUNTS!r}:
    user = User.objects.create_user(f"live-{{name}}", is_staff=True)
    if name != "nobody":
        user.groups.add(Group.objects.get(name="viewer"))
    client = Client()
    client.force_login(user)
    keys[name] = client.cookies["rmb_operator"].value
print(json.dumps(keys))
"""


@pytest.fixture(scope="module")
def accounts(relay: RelayProcess) -> dict[str, str]:
    """Return the session keys of some accounts that have just signed in."""
    done = run_command(
        relay.folder, "shell", "-v", "0", "-c", MAKE_ACCOUNTS, settings=relay.settings
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


@contextlib.contextmanager
def database(relay: RelayProcess) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(relay.folder / "data" / "relay.sqlite3", timeout=20)
    with contextlib.closing(connection), connection:
        yield connection


async def live(relay: RelayProcess, key: str, *, origin: str = "", path: str = "/console/live",
               **options: Any) -> ClientConnection:  # fmt: skip
    site = f"127.0.0.1:{relay.admin_port}"
    return await websockets.connect(
        f"ws://{site}{path}",
        origin=websockets.Origin(origin or f"http://{site}"),
        additional_headers={"Cookie": f"rmb_operator={key}"},
        **options,
    )


async def frame(socket: ClientConnection) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(await asyncio.wait_for(socket.recv(), FRAME_WITHIN_S))
    return found


async def closed(socket: ClientConnection, within_s: float = FRAME_WITHIN_S) -> int | None:
    """Return the code that the websocket was closed with, after any frames."""
    with contextlib.suppress(ConnectionClosed):
        async with asyncio.timeout(within_s):
            while True:
                await socket.recv()
    return socket.close_code


async def test_numbers_move_under_load(relay: RelayProcess, accounts: dict[str, str]) -> None:
    one, two = fresh_twins(2)
    async with (
        await live(relay, accounts["stays"]) as socket,
        session(relay.url, one) as sender,
        session(relay.url, two) as receiver,
    ):
        first = await frame(socket)
        assert set(first) == {"at", "values", "alarms", "partners"}
        assert first["values"]["workers"] == 1
        seen = [first]

        async def chat() -> None:
            while True:
                await sender.request((two.id, None), bytes(200))
                await receiver.receive()

        chatting = asyncio.create_task(chat())
        try:
            while (seen[-1]["values"]["messages_out"] or 0) < 10:
                seen.append(await frame(socket))
                assert len(seen) < FRAME_WITHIN_S
        finally:
            chatting.cancel()
            await asyncio.gather(chatting, return_exceptions=True)
        values = seen[-1]["values"]
        assert values["sessions"] >= 2
        assert values["bytes_out"] > 200 * values["messages_out"]
        assert 0 < values["commit_p50"] <= values["commit_p99"]
        times = [each["at"] for each in seen]
        assert times == sorted(set(times))


async def test_who_is_let_in(relay: RelayProcess, accounts: dict[str, str]) -> None:
    for key, code in (("", SIGNED_OUT), ("x" * 32, SIGNED_OUT), (accounts["nobody"], NOT_ALLOWED)):
        async with await live(relay, key) as socket:
            assert await closed(socket) == code
    stays = accounts["stays"]
    port = relay.admin_port
    for wrong in (
        {"origin": "http://evil.example"},
        {"origin": f"http://127.0.0.1:{port + 1}"},
        {"origin": "http://evil.example", "host": "evil.example"},
        {"path": "/console/other"},
    ):
        host = wrong.pop("host", "")
        with pytest.raises(InvalidStatus) as refused:
            if host:
                # A name that its owner points at this address: DNS rebinding.
                await live_under(relay, stays, host)
            else:
                await live(relay, stays, **wrong)
        assert refused.value.response.status_code == 403
    # Clients may only listen.
    async with await live(relay, stays) as socket:
        await socket.send("hello")
        assert await closed(socket) == NOT_ASKED


async def live_under(relay: RelayProcess, key: str, host: str) -> ClientConnection:
    return await websockets.connect(
        f"ws://{host}/console/live",
        host="127.0.0.1",
        port=relay.admin_port,
        origin=websockets.Origin(f"http://{host}"),
        additional_headers={"Cookie": f"rmb_operator={key}"},
    )


async def test_an_account_has_so_many_and_no_more(
    relay: RelayProcess, accounts: dict[str, str]
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        many = [
            await stack.enter_async_context(await live(relay, accounts["many"]))
            for _ in range(MAX_PER_ACCOUNT)
        ]
        # All clients get the same frame.
        firsts = [await frame(socket) for socket in many]
        assert len({each["at"] for each in firsts[1:]}) <= 3
        async with await live(relay, accounts["many"]) as more:
            assert await closed(more) == TOO_MANY
        async with await live(relay, accounts["stays"]) as other:
            assert await frame(other)
        await many.pop().close()
        async with await live(relay, accounts["many"]) as more:
            assert await frame(more)


async def test_a_right_that_ends_ends_the_socket(
    relay: RelayProcess, accounts: dict[str, str]
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        names = ("stays", "leaves", "disabled", "demoted")
        sockets = {
            name: await stack.enter_async_context(await live(relay, accounts[name]))
            for name in names
        }
        for socket in sockets.values():
            await frame(socket)
        with database(relay) as rows:
            rows.execute("DELETE FROM django_session WHERE session_key = ?", (accounts["leaves"],))
            rows.execute("UPDATE auth_user SET is_active = 0 WHERE username = 'live-disabled'")
            rows.execute(
                "DELETE FROM auth_user_groups WHERE user_id ="
                " (SELECT id FROM auth_user WHERE username = 'live-demoted')"
            )
        within_s = CHECK_S + FRAME_WITHIN_S
        staying = asyncio.create_task(closed(sockets["stays"], within_s))
        codes = await asyncio.gather(*(closed(sockets[name], within_s) for name in names[1:]))
        assert codes == [SIGNED_OUT, SIGNED_OUT, NOT_ALLOWED]
        assert not staying.done()
        staying.cancel()


async def test_one_that_does_not_read_gets_the_newest(
    relay: RelayProcess, accounts: dict[str, str]
) -> None:
    """A client that does not read gets the newest frame; other clients are not affected."""
    async with (
        await live(relay, accounts["stays"], max_queue=1) as slow,
        await live(relay, accounts["stays"]) as quick,
    ):
        at = (await frame(slow))["at"]
        while (await frame(quick))["at"] < at + 3:
            pass
        assert (await frame(slow))["at"] > at

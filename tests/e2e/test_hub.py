"""Many twins on one connection, at a real relay."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from peer.client import Client, Hub, Request, Response
from peer.link import Link
from peer.links import Links
from tests.support.identities import Twin
from tests.support.redis_servers import start_valkey
from tests.support.relay_process import RelayProcess
from tests.support.waiting import eventually
from tests.support.world import all_twins_csv, fresh_twins

COUNT = 200

pytestmark = pytest.mark.asyncio(loop_scope="module")


def secret_of(twin: Twin) -> str:
    """TEST KEY: Return the secret text of a test twin."""
    return f"0x{twin.mini_secret.hex()}"


@pytest.fixture(scope="module")
def own_relay(
    tmp_path_factory: pytest.TempPathFactory, data_template: Path
) -> Iterator[RelayProcess]:
    """Start a relay that the last test restarts."""
    server = start_valkey(tmp_path_factory.mktemp("redis"), append_fsync="no")
    relay = RelayProcess(tmp_path_factory.mktemp("relay"), data_template, server)
    try:
        yield relay.start()
    finally:
        relay.stop()
        server.remove()


@pytest.fixture(scope="module")
def twins_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("twins") / "twins.csv"
    path.write_text(all_twins_csv())
    return path


class Many:
    """Clients of a hub; each answers `echo`, and keeps the payloads sent to `keep`."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.twins = fresh_twins(COUNT)
        self.clients: list[Client] = []
        self.kept: dict[int, list[bytes]] = {twin.id: [] for twin in self.twins}

    async def open(self) -> None:
        """Sign in all clients."""
        self.clients = await asyncio.gather(*map(self._open, self.twins))

    async def _open(self, twin: Twin) -> Client:
        def keep(request: Request) -> Response:
            self.kept[twin.id].append(request.payload)
            return Response(b"", None)

        handlers = {"echo": echo, "keep": keep}
        return await self.hub.open(secret_of(twin), sid=None, handlers=handlers)

    def links(self, number: int) -> Links:
        """Return the links of a client."""
        session = self.clients[number]._session
        assert session is not None
        return session.links

    def link(self, number: int) -> Link:
        """Return the first link of a client."""
        return self.links(number).links[0]


def echo(request: Request) -> Response:
    return Response(request.payload, None)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def many(own_relay: RelayProcess, twins_file: Path) -> AsyncIterator[Many]:
    async with Hub(own_relay.url, twins_file) as hub:
        opened = Many(hub)
        await opened.open()
        yield opened


@contextlib.asynccontextmanager
async def on_websocket(
    twin: Twin, relay: RelayProcess, twins_file: Path, **options: object
) -> AsyncIterator[Client]:
    """Open a client with a websocket of its own."""
    async with Client(secret_of(twin), [relay.url], twins_file, **options) as client:  # type: ignore[arg-type]
        yield client


async def test_twins_of_one_connection_and_a_websocket_talk(
    many: Many, own_relay: RelayProcess, twins_file: Path
) -> None:
    await eventually(lambda: own_relay.counted("mux_streams") == COUNT)
    assert own_relay.counted("mux_connections") == 1
    (twin,) = fresh_twins(1)
    async with on_websocket(twin, own_relay, twins_file, handlers={"echo": echo}) as other:
        there = (other.call(twin.id, "echo", b"%d" % twin.id) for twin in many.twins)
        back = (client.call(other.address, "echo", b"back") for client in many.clients)
        replies = await asyncio.gather(*there, *back)
    expected = [b"%d" % twin.id for twin in many.twins] + [b"back"] * COUNT
    assert [reply.payload for reply in replies] == expected


async def test_a_session_that_is_paused_stalls_no_other(
    many: Many, own_relay: RelayProcess, twins_file: Path
) -> None:
    (twin,) = fresh_twins(1)
    paused, other = many.twins[0].id, many.twins[1].id
    sent = [b"%d " % number * 5_000 for number in range(200)]
    many.links(0).pause()
    async with on_websocket(twin, own_relay, twins_file) as client:
        for body in sent:
            await client.notify(paused, "keep", body)
            await client.notify(other, "keep", body)
        await client.flush()
        await eventually(lambda: many.kept[other] == sent)
        assert len(many.kept[paused]) < len(sent) / 2
        many.links(0).resume()
        await eventually(lambda: many.kept[paused] == sent)
    assert many.link(0).sessions == 1


async def test_a_session_that_is_replaced_ends_alone(
    many: Many, own_relay: RelayProcess, twins_file: Path
) -> None:
    async with on_websocket(many.twins[0], own_relay, twins_file, sid=None):
        await eventually(lambda: many.link(0).close_code == 4001)
    await eventually(lambda: many.link(0).connected)
    assert "4001 replaced" in many.link(0).last_error
    assert [many.link(number).sessions for number in range(1, COUNT)] == [1] * (COUNT - 1)
    reply = await many.clients[1].call(many.twins[0].id, "echo", b"again")
    assert reply.payload == b"again"


async def test_nothing_is_lost_when_the_relay_is_killed(
    many: Many, own_relay: RelayProcess
) -> None:
    async def talk(number: int) -> list[bytes]:
        target = many.twins[number - 1].id
        bodies = [b"%d %d" % (number, count) for count in range(10)]
        for body in bodies:
            await many.clients[number].call(target, "keep", body, timeout=60)
            await asyncio.sleep(0.05)
        return bodies

    for kept in many.kept.values():
        kept.clear()
    talking = [asyncio.create_task(talk(number)) for number in range(COUNT)]
    await eventually(lambda: any(many.kept.values()))
    await asyncio.to_thread(own_relay.kill)
    own_relay.start(wait=False)
    sent = await asyncio.gather(*talking)
    for number, bodies in enumerate(sent):
        assert set(many.kept[many.twins[number - 1].id]) == set(bodies)
    assert all(client.connected for client in many.clients)

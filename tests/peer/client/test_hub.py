"""Clients of many twins over one connection, at a fake relay."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from peer.client import Client, ConnectError, Hub, RemoteError, Request
from tests.peer.client.conftest import secret_of
from tests.support.identities import Twin
from tests.support.stream_relay import RoutingRelay, stream_relay
from tests.support.waiting import eventually
from tests.support.world import TWINS, UNKNOWN_TWIN

MANY = list(TWINS.values())[:100]


@pytest_asyncio.fixture
async def routing() -> AsyncIterator[RoutingRelay]:
    relay = RoutingRelay()
    async with stream_relay(relay):
        yield relay


@pytest_asyncio.fixture
async def hub(routing: RoutingRelay, twins_file: Path) -> AsyncIterator[Hub]:
    async with Hub(routing.url, twins_file) as opened:
        yield opened


async def opened(hub: Hub, twins: list[Twin]) -> list[Client]:
    return await asyncio.gather(
        *(hub.open(secret_of(twin), sid=None, handlers={"echo": echo}) for twin in twins)
    )


async def echo(request: Request) -> list[object]:
    return [request.source.twin, request.json()]


async def test_twins_of_one_connection_talk_to_each_other(hub: Hub, routing: RoutingRelay) -> None:
    clients = await opened(hub, MANY)
    assert len(routing.wires) == 1
    assert hub.connected
    calls = (
        client.call(MANY[number - 1].id, "echo", number) for number, client in enumerate(clients)
    )
    replies = await asyncio.gather(*calls)
    assert [reply.json() for reply in replies] == [
        [twin.id, number] for number, twin in enumerate(MANY)
    ]


async def test_calls_survive_the_loss_of_the_connection(hub: Hub, routing: RoutingRelay) -> None:
    alice, bob = await opened(hub, MANY[:2])
    routing.cut()
    reply = await alice.call(MANY[1].id, "echo", 1, timeout=10)
    assert reply.json() == [MANY[0].id, 1]
    assert bob.connected


async def test_one_client_of_many_ends(hub: Hub, routing: RoutingRelay) -> None:
    alice, bob = await opened(hub, MANY[:2])
    await bob.aclose()
    assert hub.clients == (alice,)
    assert await alice.twin(MANY[1].id) is not None  # the twins are still open
    async with hub.client(secret_of(MANY[1])) as again:
        with pytest.raises(RemoteError, match="unknown command"):
            await again.call(MANY[0].id, "other")
    assert hub.clients == (alice,)


async def test_a_twin_that_cannot_be_opened_harms_no_other(hub: Hub, routing: RoutingRelay) -> None:
    (alice,) = await opened(hub, MANY[:1])
    with pytest.raises(ConnectError, match="no twin found"):
        await hub.open(secret_of(UNKNOWN_TWIN))
    routing.answer = lambda token: "401 invalid jwt: for the test"
    with pytest.raises(ConnectError, match="401: invalid jwt: for the test"):
        await hub.open(secret_of(MANY[1]), connect_timeout=0.2)
    assert hub.clients == (alice,)
    assert alice.connected


async def test_the_hubs_end_is_that_of_all_clients(routing: RoutingRelay, twins_file: Path) -> None:
    async with Hub(routing.url, twins_file) as hub:
        clients = await opened(hub, MANY[:3])
    await eventually(lambda: all(each.ended for each in routing.twins.values()))
    for client in clients:
        with pytest.raises(RuntimeError, match="not open"):
            _ = client.address
    with pytest.raises(RuntimeError, match="not open"):
        hub.client(secret_of(MANY[0]))


async def test_the_hubs_end_is_that_of_clients_that_are_being_opened(
    routing: RoutingRelay, twins_file: Path
) -> None:
    routing.may_answer.clear()
    async with Hub(routing.url, twins_file) as hub:
        opening = [asyncio.create_task(hub.open(secret_of(twin))) for twin in MANY[:2]]
        await eventually(lambda: len(routing.sign_ins) == 2)
        opening[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening[0]
    with pytest.raises(ConnectError, match="the hub was closed"):
        await opening[1]


def test_arguments_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="twins: give"):
        Hub("wss://relay.example")
    with pytest.raises(ValueError, match="must be ws:// or wss://"):
        Hub("https://relay.example", "twins.csv")

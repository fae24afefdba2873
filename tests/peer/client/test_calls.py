"""Calls between clients through a real relay."""

from __future__ import annotations

import asyncio

from peer.client import (
    Reply,
    Request,
)
from tests.peer.client.conftest import MakeClient
from tests.support.world import fresh_twins


async def add(request: Request) -> object:
    return sum(request.json())


async def test_a_call_is_answered(make_client: MakeClient) -> None:
    alice, bob = fresh_twins(2)
    async with make_client(bob, sid=None) as server, make_client(alice) as client:
        server.serve({"calc.add": add})
        reply = await client.call(bob.id, "calc.add", [1, 2])
        assert reply == Reply(b"3", "application/json", server.address)
        assert reply.json() == 3


async def test_many_calls_at_once(make_client: MakeClient) -> None:
    alice, bob = fresh_twins(2)
    async with make_client(bob, sid=None) as server, make_client(alice) as client:
        server.serve({"calc.add": add})
        calls = (client.call(bob.id, "calc.add", [n, n]) for n in range(500))
        replies = await asyncio.gather(*calls)
        assert [reply.json() for reply in replies] == [2 * n for n in range(500)]

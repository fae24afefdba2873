"""Requests and answers between two gateways, through a real relay."""

from __future__ import annotations

import asyncio

from tests.peer.gateway.conftest import StartGateway
from tests.support.gateway_process import Program, Service, payload_of


async def test_a_request_is_served_and_its_answer_comes_back(start_gateway: StartGateway) -> None:
    here, there = start_gateway(), start_gateway()
    await asyncio.gather(here.connected(), there.connected())
    async with Service(there.redis, "calc.add") as service:
        answer = await Program(here.redis).call("calc.add", there.twin, b"[1,2]", ref="mine")
    assert payload_of(answer) == b"[1,2]"
    assert answer["ref"] == "mine"
    assert answer["src"] == str(there.twin)
    assert answer["err"] is None
    (request,) = service.taken
    assert request["src"] == str(here.twin)
    assert request["cmd"] == "calc.add"
    assert request["ret"] == "msgbus.system.reply"
    assert set(request) == set(
        ["ver", "ref", "src", "cmd", "exp", "dat", "tag", "ret", "shm", "now"]
    )
    assert set(answer) == set(["ver", "ref", "dat", "src", "shm", "now", "err"])

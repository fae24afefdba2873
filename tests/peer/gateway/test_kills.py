"""Gateways killed at every step: what they took from a system list arrives, exactly once."""

from __future__ import annotations

import json
import time
from collections import Counter

import pytest

from peer.gateway.outgoing import LOOK_UPS
from proto.rmb import types_pb2 as pb
from tests.peer.gateway.conftest import StartGateway
from tests.support.gateway_process import GatewayProcess, Program, Service, payload_of
from tests.support.redis_servers import RedisServer
from tests.support.relay_process import RelayProcess
from tests.support.waiting import eventually
from tests.support.world import AWAY, fresh_twins

MESSAGES = 20
SENDING = [
    "peer.gateway.outgoing:Outgoing._record_and_send",
    "peer.gateway.commits:Commits._write",
    "peer.gateway.commits:Commits._look_written",
    "peer.gateway.commits:Commits._answered",
    "peer.unconfirmed:Unconfirmed.send",
    "peer.connection:Connection._flush",
    "peer.gateway.outgoing:Outgoing.settled",
]
AT_ONCE = ["peer.unconfirmed:Unconfirmed.pong", "peer.gateway.outgoing:Outgoing._remove"]
"""Steps that run once: one pong settles all messages, and they are removed in one step."""
NUMBERED = [*(f"{step}:{when}:2" for step in SENDING for when in ("before", "after"))]
NUMBERED += [f"{step}:{when}:1" for step in AT_ONCE for when in ("before", "after")]


def entries(redis: RedisServer, queue: str) -> list[bytes]:
    found: list[bytes] = redis.run("LRANGE", queue, 0, -1)
    return found


async def until_settled(gateway: GatewayProcess) -> None:
    """Wait until no request is in progress."""
    await eventually(lambda: not gateway.redis.run("EXISTS", "msgbus.processing"))


@pytest.mark.parametrize(
    "fault", ["peer.gateway.outgoing:Outgoing.take_request:before:2", *NUMBERED]
)
async def test_requests_survive(start_gateway: StartGateway, fault: str) -> None:
    there = start_gateway()
    await there.connected()
    here = start_gateway(fault)
    program = Program(here.redis)
    for number in range(MESSAGES):
        program.ask("kill.test", [there.twin], b"%d" % number, exp=120)
    await here.died()
    here.start()
    await eventually(lambda: len(entries(there.redis, "msgbus.kill.test")) >= MESSAGES)
    await until_settled(here)
    taken = [json.loads(each) for each in entries(there.redis, "msgbus.kill.test")]
    assert Counter(int(payload_of(each)) for each in taken) == Counter(range(MESSAGES))
    assert len({each["ref"] for each in taken}) == MESSAGES


@pytest.mark.parametrize(
    "fault", ["peer.gateway.outgoing:Outgoing.take_response:before:2", *NUMBERED]
)
async def test_answers_survive(start_gateway: StartGateway, fault: str) -> None:
    here, there = start_gateway(), start_gateway()
    await here.connected()
    await there.connected()
    program = Program(here.redis)
    rets = [program.ask("kill.test", [there.twin], exp=120) for _ in range(MESSAGES)]
    await eventually(lambda: len(entries(there.redis, "msgbus.kill.test")) == MESSAGES)
    await until_settled(here)
    there.stop()
    there.start(fault)
    service = Service(there.redis, "kill.test")
    async with service:
        await there.died()
        there.start()
        answers = [await program.answer(ret) for ret in rets]
        await until_settled(there)
    assert all(answer["err"] is None for answer in answers)
    assert not any(entries(here.redis, ret) for ret in rets)


async def test_a_request_to_several_twins_is_sent_on(start_gateway: StartGateway) -> None:
    others = [start_gateway() for _ in range(3)]
    for each in others:
        await each.connected()
    # Killed between the first and the second of the three envelopes of one request.
    here = start_gateway("peer.unconfirmed:Unconfirmed.send:before:2")
    Program(here.redis).ask("kill.test", [each.twin for each in others], exp=120)
    await here.died()
    here.start()
    uids = set()
    for each in others:
        await eventually(lambda one=each: entries(one.redis, "msgbus.kill.test"))
        (entry,) = entries(each.redis, "msgbus.kill.test")
        uids.add(json.loads(entry)["ref"])
    assert len(uids) == 1
    await until_settled(here)


PARTS = [
    "peer.gateway.outgoing:Outgoing._send_request:after:1",
    "peer.gateway.outgoing:Outgoing._send_request:before:2",
    "peer.gateway.commits:Commits._write:after:1",
    "peer.gateway.commits:Commits._look_written:before:1",
    "peer.gateway.commits:Commits._write:before:2",
    "peer.unconfirmed:Unconfirmed.send:before:60",
    "peer.unconfirmed:Unconfirmed.send:before:110",
]
"""Steps at which a request is in two parts: to twins looked up first, and to the others."""


ABSENT = AWAY[: LOOK_UPS + 20]


@pytest.mark.parametrize("fault", PARTS)
async def test_no_part_of_a_request_to_many_is_lost_or_made_twice(
    start_gateway: StartGateway, relay: RelayProcess, fault: str
) -> None:
    """No part of a request to many twins is lost or made twice.

    All but two receivers are absent: the relay's Redis has the messages for them.
    """
    first, second = fresh_twins(2)
    here = start_gateway(fault)
    there = [start_gateway(twin=each) for each in (first, second)]
    receivers = [first.id, *ABSENT, second.id]
    Program(here.redis).ask("kill.test", receivers, exp=120)
    await here.died()
    here.start()
    for each in there:
        await eventually(lambda one=each: entries(one.redis, "msgbus.kill.test"))
    await until_settled(here)
    taken = [entries(each.redis, "msgbus.kill.test") for each in there]
    assert [len(each) for each in taken] == [1, 1]
    (uid,) = {json.loads(entry)["ref"] for each in taken for entry in each}
    # The same bytes may be there twice: their receiver recognises them by the signature.
    made = [len(waiting(relay, twin, uid)) for twin in ABSENT]
    assert made == [1] * len(ABSENT)


def waiting(relay: RelayProcess, twin: int, uid: str) -> set[bytes]:
    """Return the messages of one request that wait for a twin at the relay."""
    found: list[tuple[bytes, dict[bytes, bytes]]] = relay.redis.run(
        "XRANGE", f"stream:{twin}", "-", "+"
    )
    messages = {fields[b"_"] for _, fields in found}
    return {each for each in messages if pb.Envelope.FromString(each).uid == uid}


async def test_answers_find_their_way_after_a_restart(start_gateway: StartGateway) -> None:
    here, there = start_gateway(), start_gateway()
    await here.connected()
    await there.connected()
    program = Program(here.redis)
    ret = program.ask("kill.test", [there.twin], ref="mine", exp=120)
    await eventually(lambda: entries(there.redis, "msgbus.kill.test"))
    await until_settled(here)
    here.kill()
    async with Service(there.redis, "kill.test"):
        await until_settled(there)
        here.start()
        answer = await program.answer(ret)
    assert answer["ref"] == "mine"


@pytest.mark.parametrize(
    "step", ["peer.gateway.outgoing:Outgoing.take_request", "peer.connection:Connection._flush"]
)
async def test_what_expired_meanwhile_is_answered(start_gateway: StartGateway, step: str) -> None:
    there = start_gateway()
    here = start_gateway(f"{step}:before:1")
    program = Program(here.redis)
    began_s = time.time()
    ret = program.ask("kill.test", [there.twin], ref="late", exp=6)
    await here.died()
    assert here.redis.run("HLEN", "msgbus.processing") == 1
    # The gateway starts again after the request has expired.
    await eventually(lambda: time.time() > began_s + 7)
    here.start()
    answer = await program.answer(ret)
    assert (answer["ref"], answer["err"]["code"]) == ("late", 102)
    await until_settled(here)

"""Requests and answers between gateways, through a real relay."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import time
from pathlib import Path

from tests.peer.gateway.conftest import StartGateway
from tests.support.gateway_process import Program, Service, payload_of, request_body
from tests.support.identities import twins_csv
from tests.support.waiting import eventually
from tests.support.world import UNKNOWN_TWIN, fresh_twins

REQUEST_FIELDS = {"ver", "ref", "src", "cmd", "exp", "dat", "tag", "ret", "shm", "now"}
ANSWER_FIELDS = {"ver", "ref", "dat", "src", "shm", "now", "err"}
MIB = 2**20


async def test_a_request_is_served_and_its_answer_comes_back(start_gateway: StartGateway) -> None:
    here, there = start_gateway(), start_gateway()
    await asyncio.gather(here.connected(), there.connected())
    async with Service(there.redis, "calc.add") as service:
        answer = await Program(here.redis).call("calc.add", there.twin, b"[1,2]", ref="mine")
    assert payload_of(answer) == b"[1,2]"
    assert answer["ref"] == "mine"
    assert answer["src"] == str(there.twin)
    assert answer["shm"] == "application/json"
    assert answer["err"] is None
    (request,) = service.taken
    assert request["src"] == str(here.twin)
    assert request["cmd"] == "calc.add"
    assert request["ret"] == "msgbus.system.reply"
    assert request["tag"] is None
    # What is left of 60 s when the request is delivered, in whole seconds.
    assert 50 <= request["exp"] <= 60
    assert set(request) == REQUEST_FIELDS
    assert set(answer) == ANSWER_FIELDS
    # No request is in progress once the relay has confirmed it, or the answer came.
    for gateway in (here, there):
        await eventually(
            lambda redis=gateway.redis: not redis.run("EXISTS", "msgbus.processing"), 10
        )


async def test_one_request_for_several_twins_has_one_uid_and_one_backlog_entry(
    start_gateway: StartGateway,
) -> None:
    here, *others = (start_gateway() for _ in range(4))
    await asyncio.gather(here.connected(), *(each.connected() for each in others))
    program = Program(here.redis)
    services = [Service(each.redis, "who.are_you") for each in others]
    for service in services:
        await service.__aenter__()
    nobody = UNKNOWN_TWIN.id
    ret = program.ask("who.are_you", [each.twin for each in others] + [nobody], b"x", ref="r")
    answers = [await program.answer(ret) for _ in range(4)]
    for service in services:
        await service.__aexit__()
    by_source = {answer["src"]: answer for answer in answers}
    assert set(by_source) == {str(each.twin) for each in others} | {str(nobody)}
    assert by_source[str(nobody)]["err"] == {
        "code": 103,
        "message": f"unknown twin id '{nobody}'",
    }
    assert all(answer["ref"] == "r" for answer in answers)
    assert len({service.taken[0]["ref"] for service in services}) == 1
    (entry,) = here.redis.run("KEYS", "msgbus.backlog.*")
    assert entry.decode() == f"msgbus.backlog.{services[0].taken[0]['ref']}"
    assert 0 < here.redis.run("TTL", entry) <= 60


async def test_a_twin_that_is_named_twice_is_asked_twice(start_gateway: StartGateway) -> None:
    """A twin named twice is asked twice, as by the reference.

    A program may wait for as many answers as it has named twins.
    """
    here, there = start_gateway(), start_gateway()
    await asyncio.gather(here.connected(), there.connected())
    program, nobody = Program(here.redis), UNKNOWN_TWIN.id
    named = [there.twin, nobody, there.twin, nobody, there.twin]
    async with Service(there.redis, "round.trip") as service:
        ret = program.ask("round.trip", named, b"x")
        answers = [await program.answer(ret) for _ in named]
    assert sorted(each["src"] for each in answers) == sorted(map(str, named))
    assert len(service.taken) == 3
    assert len({each["ref"] for each in service.taken}) == 1
    await eventually(lambda: not here.redis.run("EXISTS", "msgbus.processing"))


async def test_bodies_of_a_mebibyte_go_both_ways(start_gateway: StartGateway) -> None:
    here, there = start_gateway(), start_gateway()
    await asyncio.gather(here.connected(), there.connected())
    payload = os.urandom(MIB)
    async with Service(there.redis, "big.echo"):
        program = Program(here.redis)
        rets = [program.ask("big.echo", [there.twin], payload) for _ in range(5)]
        answers = [await program.answer(ret) for ret in rets]
    assert all(payload_of(answer) == payload for answer in answers)


async def test_what_is_larger_than_a_relay_takes_is_answered(start_gateway: StartGateway) -> None:
    here = start_gateway()
    await here.connected()
    answer = await Program(here.redis).call("big.echo", here.twin, bytes(16 * MIB))
    assert answer["err"]["code"] == 500
    assert "at most 16777216 can be sent" in answer["err"]["message"]


async def test_what_is_too_large_to_be_read_is_answered(start_gateway: StartGateway) -> None:
    here = start_gateway()
    await here.connected()
    program = Program(here.redis)
    ret = program.ask("big.echo", [here.twin], bytes(19 * MIB), ref="mine")
    answer = await program.answer(ret)
    assert (answer["ref"], answer["err"]["code"]) == ("mine", 500)
    assert "bytes, at most 25165824 are allowed" in answer["err"]["message"]
    ret = program.ask("big.echo", [here.twin])
    request = json.loads(
        await eventually(lambda: here.redis.run("RPOP", "msgbus.big.echo"), 20, "the request")
    )
    large = base64.b64encode(bytes(19 * MIB)).decode()
    body = {"ref": request["ref"], "dat": large, "dst": request["src"], "now": request["now"]}
    here.redis.run("LPUSH", "msgbus.system.reply", json.dumps(body))
    answer = await program.answer(ret)
    assert "malformed answer of the service: entry has" in answer["err"]["message"]


async def test_a_twin_without_a_key_gets_plain_text(
    start_gateway: StartGateway, tmp_path: Path
) -> None:
    sealed, plain = fresh_twins(2)
    path = tmp_path / "twins.csv"
    rows = twins_csv([sealed, plain]).splitlines()
    number, account, _, relays = rows[2].split(",")
    path.write_text("\n".join([*rows[:2], f"{number},{account},,{relays}", ""]))
    here = start_gateway(twin=sealed, twins=path)
    there = start_gateway(twin=plain, twins=path)
    await asyncio.gather(here.connected(), there.connected())
    for one, other in ((here, there), (there, here)):
        async with Service(other.redis, "calc.add") as service:
            answer = await Program(one.redis).call("calc.add", other.twin, b"hello")
        assert payload_of(answer) == b"hello"
        assert payload_of(service.taken[0]) == b"hello"


async def test_an_expiration_of_0_is_taken_as_300(start_gateway: StartGateway) -> None:
    here = start_gateway()
    await here.connected()
    async with Service(here.redis, "self.echo") as service:
        answer = await Program(here.redis).call("self.echo", here.twin, b"x", exp=0)
    assert answer["err"] is None
    assert 290 <= service.taken[0]["exp"] <= 300


async def test_long_expirations_are_clamped(start_gateway: StartGateway) -> None:
    here = start_gateway()
    await here.connected()
    async with Service(here.redis, "self.echo") as service:
        await Program(here.redis).call("self.echo", here.twin, b"x", exp=10_000)
    assert 1790 <= service.taken[0]["exp"] <= 1800


async def test_a_request_that_is_expired_already_is_answered(start_gateway: StartGateway) -> None:
    here = start_gateway()
    program = Program(here.redis)
    ret = program.ask("a.b", [here.twin], ref="late", exp=10, now=int(time.time()) - 11)
    answer = await program.answer(ret)
    assert answer["ref"] == "late"
    assert answer["err"] == {
        "code": 102,
        "message": "envelope validation error: message has expired",
    }


async def test_malformed_entries_are_answered_or_kept(start_gateway: StartGateway) -> None:
    here = start_gateway()
    program = Program(here.redis)
    program.push({"ret": "mine", "cmd": "a.b", "dst": "nobody", "ref": "r"})
    answer = await program.answer("mine")
    assert answer["ref"] == "r"
    assert answer["err"]["message"] == "malformed request: dst is not a list of twin ids"
    program.push(b"not json \xff")
    here.redis.run("LPUSH", "msgbus.system.reply", b'{"ref":"u"}')
    await eventually(lambda: here.redis.run("LLEN", "msgbus.dead") == 2)
    kept = [json.loads(each) for each in here.redis.run("LRANGE", "msgbus.dead", 0, -1)]
    assert {(queue, reason) for _, queue, reason, _ in kept} == {
        ("msgbus.system.local", "entry is not JSON"),
        ("msgbus.system.reply", "dst is not the address of a twin"),
    }
    await eventually(lambda: not here.redis.run("EXISTS", "msgbus.processing"))


async def test_a_malformed_answer_of_a_service_reaches_who_asked(
    start_gateway: StartGateway,
) -> None:
    here, there = start_gateway(), start_gateway()
    await asyncio.gather(here.connected(), there.connected())
    program = Program(here.redis)
    ret = program.ask("calc.add", [there.twin])
    found = await eventually(lambda: there.redis.run("RPOP", "msgbus.calc.add"))
    request = json.loads(found)
    bad = {"ref": request["ref"], "dst": request["src"], "dat": "?"}
    there.redis.run("LPUSH", "msgbus.system.reply", json.dumps(bad))
    answer = await program.answer(ret)
    assert answer["err"] == {
        "code": 500,
        "message": "malformed answer of the service: dat is not base64",
    }


async def test_errors_of_services_pass(start_gateway: StartGateway) -> None:
    here, there = start_gateway(), start_gateway()
    await asyncio.gather(here.connected(), there.connected())
    program = Program(here.redis)
    ret = program.ask("calc.add", [there.twin])
    found = await eventually(lambda: there.redis.run("RPOP", "msgbus.calc.add"))
    request = json.loads(found)
    error = {"code": 255, "message": "no"}
    bad = {"ref": request["ref"], "dst": request["src"], "dat": "bnVsbA==", "err": error}
    there.redis.run("LPUSH", "msgbus.system.reply", json.dumps(bad))
    assert (await program.answer(ret))["err"] == error


async def test_two_answers_to_one_request_both_come(start_gateway: StartGateway) -> None:
    here, there = start_gateway(), start_gateway()
    await asyncio.gather(here.connected(), there.connected())
    program = Program(here.redis)
    ret = program.ask("calc.add", [there.twin])
    found = await eventually(lambda: there.redis.run("RPOP", "msgbus.calc.add"))
    request = json.loads(found)
    for text in ("MQ==", "Mg=="):
        answer = {"ref": request["ref"], "dst": request["src"], "dat": text}
        there.redis.run("LPUSH", "msgbus.system.reply", json.dumps(answer))
    found_payloads = [payload_of(await program.answer(ret)) for _ in range(2)]
    assert found_payloads == [b"1", b"2"]


async def test_relay_errors_reach_the_program(start_gateway: StartGateway) -> None:
    here = start_gateway()
    await here.connected()
    away = fresh_twins(1)[0]
    answer = await Program(here.redis).call("a.b", away.id, tag="fail-fast")
    assert answer["err"] == {"code": 0, "message": "destination offline"}
    assert answer["src"] == "0"


async def test_lists_keep_the_newest_10000_entries(start_gateway: StartGateway) -> None:
    here = start_gateway()
    await here.connected()
    here.redis.run("EVAL", "for i=1,10000 do redis.call('LPUSH',KEYS[1],i) end", 1, "msgbus.full.x")
    Program(here.redis).ask("full.x", [here.twin])
    await eventually(lambda: here.redis.run("LINDEX", "msgbus.full.x", 0) != b"10000")
    assert here.redis.run("LLEN", "msgbus.full.x") == 10_000
    assert here.redis.run("LINDEX", "msgbus.full.x", -1) == b"2"
    assert 50 < here.redis.run("TTL", "msgbus.full.x") <= 60


async def test_requests_that_were_pushed_first_are_sent_first(start_gateway: StartGateway) -> None:
    redis_first = start_gateway()
    await redis_first.connected()
    program = Program(redis_first.redis)
    bodies = [
        request_body("in.order", [redis_first.twin], "r", b"%d" % number) for number in range(300)
    ]
    # All entries are in the list before the gateway takes one.
    redis_first.stop()
    for body in bodies:
        program.push(body)
    redis_first.start()
    await eventually(lambda: redis_first.redis.run("LLEN", "msgbus.in.order") == 300)
    found = redis_first.redis.run("LRANGE", "msgbus.in.order", 0, -1)
    assert [int(payload_of(json.loads(each))) for each in reversed(found)] == list(range(300))

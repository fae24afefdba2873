"""Relays and Redis become unavailable: gateways wait, switch relays, resume, and lose nothing."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from redis.exceptions import ResponseError

from tests.peer.gateway.conftest import StartGateway
from tests.support.gateway_process import Program, Service, payload_of, request_body
from tests.support.redis_servers import RedisServer, start_valkey
from tests.support.relay_process import RelayProcess
from tests.support.waiting import eventually

MESSAGES = 300


def served(redis: RedisServer) -> list[dict[str, object]]:
    return [json.loads(each) for each in redis.run("LRANGE", "msgbus.out.age", 0, -1)]


async def test_a_relay_that_is_killed_loses_nothing(
    start_gateway: StartGateway, relay: RelayProcess, data_template: Path, tmp_path: Path
) -> None:
    """A killed relay loses nothing: the sender switches to the other relay of the same Redis."""
    redis = start_valkey(tmp_path, append_fsync="no")
    first = RelayProcess(tmp_path / "first", data_template, redis).start()
    second = RelayProcess(tmp_path / "second", data_template, redis).start()
    try:
        relays = (first.url, second.url)
        here = start_gateway(relays=relays)
        there = start_gateway(relays=(second.url,))
        await here.connected(2)
        await there.connected()
        program = Program(here.redis)
        for number in range(MESSAGES):
            program.ask("out.age", [there.twin], b"%d" % number, exp=120)
            if number == MESSAGES // 2:
                first.kill()
        await eventually(lambda: len(served(there.redis)) >= MESSAGES, 60)
        await eventually(lambda: not here.redis.run("EXISTS", "msgbus.processing"))
        numbers = Counter(int(payload_of(each)) for each in served(there.redis))
        assert numbers == Counter(range(MESSAGES))
    finally:
        second.stop()
        if first in RelayProcess.running:
            first.stop()
        redis.remove()


async def test_a_relay_that_is_away_is_waited_for(
    start_gateway: StartGateway, data_template: Path, tmp_path: Path
) -> None:
    redis = start_valkey(tmp_path, append_fsync="no")
    only = RelayProcess(tmp_path / "relay", data_template, redis).start()
    try:
        here, there = start_gateway(relays=(only.url,)), start_gateway(relays=(only.url,))
        await here.connected()
        await there.connected()
        program = Program(here.redis)
        only.kill()
        rets = [program.ask("out.age", [there.twin], exp=120) for _ in range(20)]
        gone = program.ask("out.age", [there.twin], exp=2, ref="gone")
        answer = await program.answer(gone)
        assert answer["err"] == {"code": 102, "message": "response has expired before sending!"}
        assert answer["src"] == str(there.twin)
        async with Service(there.redis, "out.age"):
            only.start()
            answers = [await program.answer(ret, 60) for ret in rets]
        assert all(each["err"] is None for each in answers)
    finally:
        only.stop()
        redis.remove()


@pytest.mark.parametrize("side", ["sender", "receiver"])
async def test_redis_that_is_killed_loses_and_doubles_nothing(
    start_gateway: StartGateway, side: str
) -> None:
    here, there = start_gateway(), start_gateway()
    await here.connected()
    await there.connected()
    program = Program(here.redis)
    for number in range(MESSAGES):
        program.ask("out.age", [there.twin], b"%d" % number, exp=120)
        if number == MESSAGES // 2:
            redis = here.redis if side == "sender" else there.redis
            redis.kill()
            redis.start()
    await eventually(lambda: len(served(there.redis)) >= MESSAGES, 60)
    await eventually(lambda: not here.redis.run("EXISTS", "msgbus.processing"), 60)
    numbers = Counter(int(payload_of(each)) for each in served(there.redis))
    assert numbers == Counter(range(MESSAGES))


async def test_a_gateway_starts_before_its_redis(start_gateway: StartGateway) -> None:
    here = start_gateway()
    await here.connected()
    here.stop()
    here.redis.stop()
    here.start()
    await eventually(lambda: "no connection to redis" in here.log())
    here.redis.start()
    async with Service(here.redis, "out.age"):
        answer = await Program(here.redis).call("out.age", here.twin, b"x")
    assert payload_of(answer) == b"x"


async def test_what_redis_can_not_take_now_is_kept(start_gateway: StartGateway) -> None:
    here, there = start_gateway(), start_gateway()
    await here.connected()
    await there.connected()
    program = Program(here.redis)
    ret = program.ask("out.age", [there.twin], exp=120)
    await eventually(lambda: served(there.redis))
    (request,) = served(there.redis)
    await eventually(lambda: not here.redis.run("EXISTS", "msgbus.processing"))
    here.redis.run("CONFIG", "SET", "maxmemory", "1")  # every write is refused from now on
    answer = {"ref": request["ref"], "dst": request["src"], "dat": "eA=="}
    there.redis.run("LPUSH", "msgbus.system.reply", json.dumps(answer))
    await eventually(lambda: "redis refused a write" in here.log())
    here.redis.run("CONFIG", "SET", "maxmemory", "0")
    assert payload_of(await program.answer(ret)) == b"x"


SETTINGS: dict[str, tuple[tuple[str | int, ...], tuple[str | int, ...]]] = {
    "READONLY": (("REPLICAOF", "127.0.0.1", 1), ("REPLICAOF", "NO", "ONE")),
    "NOREPLICAS": (
        ("CONFIG", "SET", "min-replicas-to-write", 1),
        ("CONFIG", "SET", "min-replicas-to-write", 0),
    ),
    "OOM": (("CONFIG", "SET", "maxmemory", 1), ("CONFIG", "SET", "maxmemory", 0)),
}
"""Commands that make a Redis refuse writes, and commands that end it."""


@contextmanager
def refusing(redis: RedisServer, why: str) -> Iterator[None]:
    """Make a Redis refuse everything with an error that begins with `why`."""
    if why != "BUSY":
        begin, end = SETTINGS[why]
        redis.run(*begin)
        yield
        redis.run(*end)
        return
    redis.run("CONFIG", "SET", "lua-time-limit", 10)
    with redis.client() as client:
        connection = client.connection_pool.get_connection()
        connection.send_command("EVAL", "while true do end", 0)
        yield
        redis.run("SCRIPT", "KILL")
        # Redis answers the kill before the script ends, and other clients with BUSY until then.
        with pytest.raises(ResponseError, match="killed by user"):
            connection.read_response()


@pytest.mark.parametrize("why", [*SETTINGS, "BUSY"])
async def test_a_redis_that_refuses_for_a_while_is_as_one_that_is_away(
    start_gateway: StartGateway, why: str
) -> None:
    """A Redis that refuses for a while loses no requests of relays and no answers of services."""
    here, there = start_gateway(), start_gateway()
    await here.connected()
    await there.connected()
    program = Program(here.redis)
    with refusing(there.redis, why):
        rets = [program.ask("out.age", [there.twin], b"%d" % n, exp=120) for n in range(3)]
        await eventually(lambda: "redis refused a write" in there.log())
    await eventually(lambda: len(served(there.redis)) == 3)
    requests = served(there.redis)
    with refusing(here.redis, why):
        for each in requests:
            answer = {"ref": each["ref"], "dst": each["src"], "dat": each["dat"]}
            there.redis.run("LPUSH", "msgbus.system.reply", json.dumps(answer))
        await eventually(lambda: "redis refused a write" in here.log())
    answers = [await program.answer(ret) for ret in rets]
    assert [payload_of(each) for each in answers] == [b"0", b"1", b"2"]
    assert served(there.redis) == requests


async def test_what_was_sent_while_redis_had_no_room_is_not_sent_anew(
    start_gateway: StartGateway,
) -> None:
    """A message sent while Redis was full is not sent in a new form.

    The next gateway process sends the same bytes, which are recognised as a repeat.
    """
    here, there = start_gateway(), start_gateway()
    await here.connected()
    await there.connected()
    program = Program(here.redis)
    request = request_body("out.age", [there.twin], "ret", b"once", exp=120)
    here.redis.run("LPUSH", "later", json.dumps(request))
    with refusing(here.redis, "OOM"):
        here.redis.run("RENAME", "later", "msgbus.system.local")  # needs no memory
        await eventually(lambda: served(there.redis))
        await eventually(lambda: "redis refused a write" in here.log())
        here.stop()
    here.start()
    await here.connected(2)
    await eventually(lambda: not here.redis.run("EXISTS", "msgbus.processing"))
    program.ask("out.age", [there.twin], b"next", exp=120)
    await eventually(lambda: b"next" in map(payload_of, served(there.redis)))
    (got, _) = served(there.redis)[::-1]
    assert [payload_of(each) for each in served(there.redis)] == [b"next", b"once"]
    answer = {"ref": got["ref"], "dst": got["src"], "dat": "eA=="}
    there.redis.run("LPUSH", "msgbus.system.reply", json.dumps(answer))
    assert payload_of(await program.answer("ret")) == b"x"

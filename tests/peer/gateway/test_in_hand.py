"""Entries taken from the system lists: as many as can be sent, once each, whatever they contain."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from peer import unconfirmed
from peer.gateway import handlers, keys, outgoing, queues
from peer.gateway.app import Gateway
from peer.gateway.bounds import MAX_IN_HAND, TAKE_ENTRIES
from peer.identity import Identity
from peer.links import Links
from peer.modules.api import CommandError, LocalRequest, Module, Request, Response
from peer.twins import TwinCache
from peer.unconfirmed import WINDOW_MESSAGES
from proto.rmb import types_pb2 as pb
from proto.rmb.address import Address
from proto.rmb.sealing import Sealer
from tests.support import identities
from tests.support.gateway_process import request_body
from tests.support.redis_servers import RedisServer
from tests.support.slow_twins import SlowTwins, known, requests
from tests.support.waiting import eventually

MB = 1024 * 1024
OWN, OTHER = identities.twin(1), identities.twin(2)


class Unspeakable(Exception):
    """An exception whose text cannot be read."""

    def __str__(self) -> str:
        raise RuntimeError("no")


ODD: dict[str, BaseException | Response] = {
    "exit": SystemExit(3),
    "str": Unspeakable(),
    "text": CommandError(400, Unspeakable()),  # type: ignore[arg-type]
    "code": CommandError("400", "no"),  # type: ignore[arg-type]
    "cancel": asyncio.CancelledError(),
    "schema": Response(b"", "\udc00"),
}


def odd(request: Request) -> Any:
    """Return or raise what the command's name selects."""
    found = ODD[request.command.removeprefix("plain.")]
    if isinstance(found, BaseException):
        raise found
    return found


def plain_module() -> Module:
    """Return a module whose handlers are plain functions."""

    def fail(request: Request) -> Any:
        raise CommandError(400, "no")

    def reply(request: Request) -> Any:
        return request.payload

    module = Module("plain", unknown=odd)
    module.command("fail")(fail)
    module.command("answer")(reply)
    return module


class Stopping(Module):
    """A module that fails, on demand, when it is stopped."""

    stopped = False
    fails = False

    async def on_stop(self) -> None:
        self.stopped = True
        if self.fails:
            raise OSError("no disk")


class Running:
    """A gateway in this process, whose relay does not exist."""

    def __init__(self, redis: RedisServer) -> None:
        self.redis = redis
        self.stopping = Stopping("first"), Stopping("second")
        self.held = asyncio.Event()
        self.twins = SlowTwins()
        self.cache = TwinCache(self.twins)
        identity = Identity(OWN.signing_key, OWN.encryption_key)
        self.gateway = Gateway(
            identity,
            known(OWN),
            self.cache,
            lambda on_message, on_change: Links(
                ["ws://127.0.0.1:1"], lambda: "", on_message, on_change
            ),
            redis.url,
            [Module("calc", unknown=self.double), plain_module(), self.holding(), *self.stopping],
        )
        self.calls = 0
        self.stop = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    def holding(self) -> Module:
        """Return a module with commands that wait until a test releases them."""
        module = Module("hold")

        async def hold(request: object) -> bytes:
            await self.held.wait()
            return b""

        module.local("it")(hold)
        module.command("other")(hold)
        return module

    async def double(self, request: Request) -> bytes:
        self.calls += 1
        return request.payload * 2

    async def start(self) -> None:
        self.task = asyncio.create_task(self.gateway.run(self.stop))
        local = self.gateway._queues[0].pipe
        await asyncio.wait_for(local.wait_usable(), 10)

    def ask(self, count: int = 1, **fields: Any) -> None:
        body = json.dumps(request_body("out.age", [OTHER.id], "ret", **fields))
        self.redis.run("LPUSH", keys.LOCAL, *[body] * count)

    def in_hand(self) -> int:
        found: int = self.redis.run("HLEN", keys.PROCESSING)
        return found

    async def aclose(self) -> None:
        self.stop.set()
        if self.task is not None:
            await asyncio.wait_for(self.task, 20)
        await self.cache.aclose()


@pytest.fixture
async def running(valkey: RedisServer) -> AsyncIterator[Running]:
    found = Running(valkey)
    yield found
    await found.aclose()


async def test_no_more_is_taken_than_can_be_in_hand(running: Running) -> None:
    """While the relays are unavailable, what programs write stays in Redis, not in memory."""
    running.cache.put(known(OTHER))
    await running.start()
    running.ask(2 * MAX_IN_HAND)
    await eventually(lambda: running.in_hand() >= MAX_IN_HAND)
    left = running.redis.run("LLEN", keys.LOCAL)
    await eventually(lambda: not running.gateway._queues[0].taking)
    assert MAX_IN_HAND <= running.in_hand() <= MAX_IN_HAND + 2 * TAKE_ENTRIES
    assert left >= MAX_IN_HAND - 2 * TAKE_ENTRIES


async def test_no_more_bytes_are_taken_than_can_wait_for_look_ups(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outgoing, "MAX_LOOK_UP_BYTES", 8 * MB)
    await running.start()
    for _ in range(10):
        running.ask(dat=base64.b64encode(bytes(2 * MB)).decode())
    await eventually(lambda: not running.gateway._queues[0].taking)
    assert running.in_hand() == 2
    running.twins.answering.set()
    await eventually(lambda: running.in_hand() == 10)


async def test_modules_refuse_more_bytes_than_they_can_have(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handlers, "MAX_HANDLERS_BYTES", 3 * MB)
    running.twins.answering.set()
    running.cache.put(known(OTHER))
    await running.start()
    body = base64.b64encode(bytes(2 * MB)).decode()
    for ret in ("first", "second"):
        asked = request_body("hold.it", [OWN.id], ret) | {"dat": body}
        running.redis.run("LPUSH", keys.LOCAL, json.dumps(asked))
    answer = json.loads(await eventually(lambda: running.redis.run("RPOP", "second")))
    assert "too many requests" in answer["err"]["message"]
    running.held.set()
    assert await eventually(lambda: running.redis.run("LLEN", "first"))


@pytest.mark.parametrize("field", ["tags", "schema"])
async def test_modules_refuse_more_text_than_they_can_have(
    running: Running, monkeypatch: pytest.MonkeyPatch, field: str
) -> None:
    """Modules refuse more text than their bound; another twin may make it as large as a payload."""
    monkeypatch.setattr(handlers, "MAX_HANDLERS_BYTES", 3 * MB)
    running.cache.put(known(OTHER))
    await running.start()
    gateway, sealer = running.gateway, Sealer((OTHER.id, None), OTHER.signing_key, None, os.urandom)
    now, own, text = int(time.time()), known(OWN)._replace(pk=None), {field: "x" * 2 * MB}
    for uid in ("first", "second"):
        data = sealer.request(uid, (OWN.id, None), "hold.other", b"", own, now, 60, **text)
        gateway._received(data)
    await eventually(lambda: gateway.gauges()["unconfirmed"] == 1)
    (sent,) = gateway._unconfirmed._messages.values()
    answer = pb.Envelope.FromString(sent.data)
    assert (answer.uid, answer.error.code) == ("second", 429)
    running.held.set()
    await eventually(lambda: gateway.counters["handled"] == 1)


def test_what_a_request_takes_in_memory() -> None:
    text = "\N{EARTH GLOBE AMERICAS}" * MB
    request = Request("", Address(7), "", b"", None, None, 0)
    for fields in ({"uid": text}, {"command": text}, {"tags": text}, {"schema": text}):
        assert request._replace(**fields).size_bytes > 4 * MB  # type: ignore[arg-type]
    assert request._replace(payload=bytes(MB)).size_bytes > MB
    assert request._replace(source=Address(7, text)).size_bytes > 4 * MB
    to = tuple(Address(number) for number in range(1, 1001))
    assert LocalRequest(to, "", b"", None, None, 0).size_bytes > 40_000


async def test_a_sweep_leaves_a_read_under_way_alone(running: Running) -> None:
    """A sweep skips a read in progress, whose entry would be sent twice if its reply is late."""
    running.cache.put(known(OTHER))
    await running.start()
    (local, _) = running.gateway._queues
    await eventually(lambda: local.taking)
    connection = local.pipe._link
    assert connection is not None and connection.transport is not None
    connection.transport.pause_reading()
    running.ask()
    await eventually(running.in_hand)
    await running.gateway._sweep()
    assert running.gateway.counters["resumed"] == 0
    connection.transport.resume_reading()
    await eventually(lambda: running.gateway.counters["requests_sent"])
    assert running.gateway.counters["requests_sent"] == 1


async def test_what_a_former_process_left_damaged_is_a_dead_letter(running: Running) -> None:
    fields = queues.Fields()
    damaged = [b"s", b"s\x05", b"s\0\0\0\0\xff\xff\xff", b"?x", b""]
    for value in damaged:
        running.redis.run("HSET", keys.PROCESSING, fields.make(), value)
    await running.start()
    await eventually(lambda: not running.in_hand())
    await eventually(lambda: running.redis.run("LLEN", keys.DEAD) == len(damaged))


async def test_a_sweep_that_redis_refuses_is_made_later(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    await running.start()
    running.redis.run("HSET", keys.PROCESSING, queues.Fields().make(), b"?")
    running.redis.run("ACL", "SETUSER", "default", "-hkeys")
    try:
        running.gateway._look_again()
        await eventually(lambda: "redis refused a read" in caplog.text)
        refused_by = running.gateway._commits.pipe.connections
        await eventually(lambda: running.gateway._commits.pipe.connections >= refused_by + 2)
    finally:
        running.redis.run("ACL", "SETUSER", "default", "+@all")
    await eventually(lambda: not running.in_hand())
    assert running.task is not None and not running.task.done()
    assert caplog.text.count("redis refused a read") == 1


async def test_errors_for_others_are_bounded(running: Running) -> None:
    """Errors for other twins are bounded.

    Any client can send messages that cannot be opened, and no relay accepts the answers.
    """
    running.twins.answering.set()
    running.cache.put(known(OTHER))
    await running.start()
    (forged,) = requests(identities.twin(3), OWN, 1)
    envelope = pb.Envelope.FromString(forged)
    envelope.source.twin = OTHER.id
    for number in range(WINDOW_MESSAGES + 100):
        envelope.uid = str(number)
        running.gateway._received(envelope.SerializeToString())
    count = WINDOW_MESSAGES + 100
    await eventually(lambda: running.gateway.counters["rejected:104"] == count)
    assert running.gateway.gauges()["unconfirmed"] == WINDOW_MESSAGES
    assert running.gateway.counters["dropped:errors"] == 100


async def test_every_request_of_a_burst_to_a_module_is_answered(running: Running) -> None:
    """Every request of a burst to a module is answered.

    The pongs that would free space for its answers come after the burst.
    """
    running.cache.put(known(OTHER))
    await running.start()
    gateway, sealer = running.gateway, Sealer((OTHER.id, None), OTHER.signing_key, None, os.urandom)
    now, own, count = int(time.time()), known(OWN)._replace(pk=None), WINDOW_MESSAGES + 2000
    for number in range(count):
        uid, name = str(number), "calc.double" if number % 2 else "plain.fail"
        gateway._received(sealer.request(uid, (OWN.id, None), name, b"1", own, now, 60))
    await eventually(lambda: gateway.gauges()["unconfirmed"] == count, 60)
    assert gateway.counters["dropped:errors"] == 0


async def test_answers_of_modules_wait_for_room(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handlers, "MAX_HANDLERS", 2)
    monkeypatch.setattr(unconfirmed, "ANSWER_MESSAGES", 0)
    running.cache.put(known(OTHER))
    await running.start()
    gateway, sealer = running.gateway, Sealer((OTHER.id, None), OTHER.signing_key, None, os.urandom)
    now = int(time.time())
    for _ in range(WINDOW_MESSAGES):
        gateway._send(b"", now + 60)
    for number in range(3):
        uid, plain = str(number), known(OWN)._replace(pk=None)
        gateway._received(sealer.request(uid, (OWN.id, None), "calc.double", b"1", plain, now, 60))
    await eventually(lambda: gateway.counters["dropped:errors"] == 1)  # one stays unanswered
    await eventually(lambda: running.calls == 2)
    await asyncio.sleep(0)
    assert gateway.gauges()["unconfirmed"] == WINDOW_MESSAGES
    for token in list(gateway._unconfirmed._messages)[: WINDOW_MESSAGES // 2 + 1]:
        gateway._unconfirmed.settle(token)
    await eventually(lambda: gateway.counters["handled"] == 2)
    assert gateway.gauges()["unconfirmed"] == WINDOW_MESSAGES // 2 - 1 + 2


async def test_a_plain_function_may_be_a_handler(running: Running) -> None:
    """A plain function may be a handler; what it raises is its answer, and reading continues."""
    running.cache.put(known(OTHER))
    await running.start()
    gateway, sealer = running.gateway, Sealer((OTHER.id, None), OTHER.signing_key, None, os.urandom)
    now, at = int(time.time()), known(OWN)._replace(pk=None)
    for number, name in enumerate(("plain.fail", "plain.answer", "out.age")):
        gateway._received(sealer.request(str(number), (OWN.id, None), name, b"1", at, now, 60))
    await eventually(lambda: gateway.counters["handled"] == 2)
    await eventually(lambda: running.redis.run("LLEN", "msgbus.out.age") == 1)


@pytest.mark.parametrize("name", list(ODD))
async def test_whatever_a_handler_raises_is_answered(running: Running, name: str) -> None:
    running.cache.put(known(OTHER))
    await running.start()
    gateway, sealer = running.gateway, Sealer((OTHER.id, None), OTHER.signing_key, None, os.urandom)
    now, at = int(time.time()), known(OWN)._replace(pk=None)
    gateway._received(sealer.request("a", (OWN.id, None), f"plain.{name}", b"", at, now, 60))
    await eventually(lambda: gateway.counters["handled"] == 1)
    (sent,) = gateway._unconfirmed._messages.values()
    assert pb.Envelope.FromString(sent.data).error.code == (400 if name == "text" else 500)
    assert running.task is not None and not running.task.done()


async def test_receivers_that_are_known_do_not_wait_for_others(running: Running) -> None:
    running.cache.put(known(OTHER))
    await running.start()
    others = list(range(3, 303))
    body = request_body("out.age", [others[0], OTHER.id, *others[1:]], "ret", exp=60)
    running.redis.run("LPUSH", keys.LOCAL, json.dumps(body))
    await eventually(lambda: running.gateway.counters["requests_sent"] == 1)
    await eventually(lambda: running.in_hand() == 2)
    entries = running.redis.client().hgetall(keys.PROCESSING)
    (left,) = (json.loads(each[1:]) for each in entries.values() if each[:1] == queues.REQUEST)
    assert left == body | {"dst": others}, "what a killed gateway would go on with"
    await eventually(lambda: len(running.cache._asking) == outgoing.LOOK_UPS)
    running.twins.answering.set()
    await eventually(lambda: running.in_hand() == 1 + len(others))
    kinds = {each[:1] for each in running.redis.client().hgetall(keys.PROCESSING).values()}
    assert kinds == {queues.SEALED}
    assert running.gateway.counters["requests_sent"] == 1 + len(others)


async def test_receivers_that_are_named_twice_are_kept_twice(running: Running) -> None:
    running.cache.put(known(OTHER))
    await running.start()
    body = request_body("out.age", [3, OTHER.id, 3, OTHER.id], "ret", exp=60)
    running.redis.run("LPUSH", keys.LOCAL, json.dumps(body))
    await eventually(lambda: running.in_hand() == 3)
    entries = running.redis.client().hgetall(keys.PROCESSING)
    (left,) = (json.loads(each[1:]) for each in entries.values() if each[:1] == queues.REQUEST)
    assert left == body | {"dst": [3, 3]}
    running.twins.answering.set()
    await eventually(lambda: running.in_hand() == 4)
    sealed = running.redis.client().hgetall(keys.PROCESSING).values()
    assert {each[:1] for each in sealed} == {queues.SEALED}
    assert len(set(sealed)) == running.gateway.counters["requests_sent"] == 4


async def test_a_large_request_to_many_twins_is_written_in_portions(running: Running) -> None:
    """A large request to many twins is written in portions.

    All of it at once may be more than Redis accepts, and would block every other write.
    """
    receivers = [identities.twin(number) for number in range(2, 34)]
    for each in receivers:
        running.cache.put(known(each))
    await running.start()
    numbers = [each.id for each in receivers]
    used = int(running.redis.client().info("memory")["used_memory"])
    running.redis.run("CONFIG", "SET", "maxmemory", used + 24 * MB)
    try:
        body = request_body("out.age", numbers, "large", os.urandom(MB), exp=4)
        running.redis.run("LPUSH", keys.LOCAL, json.dumps(body))
        await eventually(lambda: running.gateway.counters["requests_sent"] >= 4)
        await eventually(lambda: not running.in_hand())
        unsent = running.gateway.counters["refused:unsent"]
        assert 4 <= unsent <= len(numbers)
        rest = int(unsent < len(numbers))
        await eventually(lambda: running.redis.run("LLEN", "large") == unsent + rest)
        running.ask(dst=[OTHER.id])
        await eventually(lambda: running.in_hand() == 1)
    finally:
        running.redis.run("CONFIG", "SET", "maxmemory", "0")


async def test_a_request_without_a_time_lives_from_when_it_was_taken(running: Running) -> None:
    """A request without a time lives from when it was read; a restart does not renew its life."""
    body = request_body("out.age", [OTHER.id], "ret", exp=5, now=0)
    for age_s in (queues.MAX_FIELD_AGE_S + 10, 1):
        field = f"{time.time_ns() // 1000 - age_s * 1_000_000:016x}-{age_s}"
        value = queues.REQUEST + json.dumps(body).encode()
        running.redis.run("HSET", keys.PROCESSING, field, value)
    await running.start()
    answer = json.loads(await eventually(lambda: running.redis.run("RPOP", "ret")))
    assert answer["err"]["code"] == 102
    assert running.gateway.counters["refused:expired"] == 1


async def test_a_request_that_expires_while_its_twin_is_looked_up(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request that expires during a late look-up of its twin gets an error."""
    await running.start()
    running.ask(exp=5)
    await eventually(lambda: OTHER.id in running.cache._asking)

    class Later:
        @staticmethod
        def time() -> float:
            return time.time() + 60

    monkeypatch.setattr(outgoing, "time", Later)
    running.twins.answering.set()
    answer = json.loads(await eventually(lambda: running.redis.run("RPOP", "ret")))
    assert answer["err"] == {
        "code": 102,
        "message": "envelope validation error: message has expired",
    }


def test_a_message_with_a_time_below_zero_is_not_written() -> None:
    sealer = Sealer((1, None), OWN.signing_key, None, os.urandom)
    with pytest.raises(ValueError, match="range"):
        sealer.request("u", (2, None), "a.b", b"", None, int(time.time()), -5)
    data = sealer.request("u", (2, None), "a.b", b"", None, 0, 0)
    assert pb.Envelope.FromString(data).expiration == 0


async def test_a_module_that_fails_does_not_keep_the_others_from_their_end(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = running.stopping
    first.fails = True
    await running.start()
    await running.aclose()
    assert first.stopped and second.stopped
    assert "module first did not stop" in caplog.text
    assert not running.gateway._commits.pipe.usable


async def test_a_gateway_that_is_still_beginning_ends_in_order(running: Running) -> None:
    """A gateway that is still starting stops cleanly.

    More was left to send than its window holds, and its relay is unavailable.
    """
    running.cache.put(known(OTHER))
    body = queues.REQUEST + json.dumps(request_body("out.age", [OTHER.id], "ret")).encode()
    fields = queues.Fields()
    left = [each for _ in range(WINDOW_MESSAGES + 10) for each in (fields.make(), body)]
    running.redis.run("HSET", keys.PROCESSING, *left)
    running.task = asyncio.create_task(running.gateway.run(running.stop))
    await eventually(lambda: running.gateway._outgoing.full)
    running.stop.set()
    await asyncio.wait_for(running.task, 10)
    assert all(module.stopped for module in running.stopping)

"""Requests that modules work on, or receive, while the gateway stops."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator

import pytest

from peer import unconfirmed
from peer.gateway import app
from peer.gateway.app import Gateway
from peer.identity import Identity
from peer.links import Links
from peer.modules.api import CommandError, Context, Module, Request
from peer.twins import TwinCache
from peer.unconfirmed import WINDOW_MESSAGES
from proto.files.errors import FileCode
from proto.rmb import types_pb2 as pb
from proto.rmb.address import Address
from proto.rmb.sealing import Sealer
from tests.support import identities
from tests.support.redis_servers import RedisServer
from tests.support.slow_twins import SlowTwins, known
from tests.support.waiting import eventually

OWN, OTHER = identities.twin(1), identities.twin(2)


class Counting(Module):
    """A module that answers `count.*`, and records what happens in which order."""

    def __init__(self) -> None:
        super().__init__("count", unknown=self.count)
        self.notes: list[str] = []
        self.go_on = asyncio.Event()
        self.stopping = asyncio.Event()
        self.stop = asyncio.Event()
        self.stop.set()
        self.context: Context | None = None

    async def count(self, request: Request) -> bytes:
        self.notes.append(f"begins {request.uid}")
        await self.go_on.wait()
        self.notes.append(f"ends {request.uid}")
        return b""

    async def on_start(self, context: Context) -> None:
        self.context = context

    async def on_stop(self) -> None:
        self.stopping.set()
        await self.stop.wait()
        self.notes.append("stops")


class World:
    """A gateway with one module; no relay accepts what it sends."""

    def __init__(self, redis: RedisServer) -> None:
        self.redis = redis
        self.module = Counting()
        self.twins = SlowTwins()
        self.twins.answering.set()
        self.cache = TwinCache(self.twins)
        self.cache.put(known(OTHER))
        self.gateway = Gateway(
            Identity(OWN.signing_key, OWN.encryption_key),
            known(OWN),
            self.cache,
            lambda on_message, on_change: Links(
                ["ws://127.0.0.1:1"], lambda: "", on_message, on_change
            ),
            redis.url,
            [self.module],
        )
        self.sealer = Sealer((OTHER.id, None), OTHER.signing_key, None, os.urandom)
        self.stop = asyncio.Event()
        self.task = asyncio.create_task(self.gateway.run(self.stop))

    def ask(self, uid: str, command: str = "count.it") -> None:
        """Bring a request to the gateway, as a relay does."""
        own, now = known(OWN)._replace(pk=None), int(time.time())
        self.gateway._received(self.sealer.request(uid, (OWN.id, None), command, b"", own, now, 60))

    def answers(self) -> dict[str, str]:
        """Return what was sent, by uid: the text of an error, or an empty string."""
        sent = [each.data for each in self.gateway._unconfirmed._messages.values()]
        return {each.uid: each.error.message for each in map(pb.Envelope.FromString, sent)}

    async def ends(self) -> None:
        """Stop the gateway and wait for its end."""
        self.stop.set()
        self.module.stop.set()
        await asyncio.wait_for(self.task, 20)
        await self.cache.aclose()


@pytest.fixture
async def world(valkey: RedisServer) -> AsyncIterator[World]:
    found = World(valkey)
    await eventually(lambda: found.gateway._queues[0].pipe.usable)
    yield found
    await found.ends()


async def test_a_handler_at_work_ends_before_its_module_does(world: World) -> None:
    world.ask("1")
    await eventually(lambda: world.module.notes)
    world.ask("2")  # it has not been opened yet
    world.stop.set()
    await eventually(lambda: len(world.module.notes) == 2)
    world.module.go_on.set()
    await world.ends()
    assert world.module.notes == ["begins 1", "begins 2", "ends 1", "ends 2", "stops"]
    assert world.answers() == {"1": "", "2": ""}


async def test_who_asked_for_more_than_there_is_time_for_is_told(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "HANDLERS_S", 0.1)
    world.ask("long")
    await eventually(lambda: world.module.notes)
    await world.ends()
    assert world.module.notes == ["begins long", "stops"]
    assert world.answers() == {"long": "the gateway ends: ask again"}


async def test_who_asks_when_the_time_of_the_handlers_is_over_is_told(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request whose handler has not started when the handlers' time is over gets an error."""
    handlers = world.gateway._handlers
    aclose = handlers.aclose

    async def late() -> None:
        deadline = int(time.time()) + 60
        assert handlers.serve(
            Request("late", Address(OTHER.id), "count.it", b"", None, None, deadline)
        )
        await aclose()

    monkeypatch.setattr(handlers, "aclose", late)
    await world.ends()
    assert world.module.notes == ["stops"]
    assert world.answers() == {"late": "the gateway ends: ask again"}


async def test_who_is_cut_off_while_the_answer_waits_for_room_is_counted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "HANDLERS_S", 0.1)
    monkeypatch.setattr(unconfirmed, "ANSWER_MESSAGES", 0)
    for _ in range(WINDOW_MESSAGES):
        world.gateway._send(b"", int(time.time()) + 60)
    world.module.go_on.set()
    world.ask("1")
    await eventually(lambda: "ends 1" in world.module.notes)
    await world.ends()
    assert world.gateway.counters["dropped:errors"] == 1


async def test_a_request_whose_sender_is_looked_up_is_carried_out(world: World) -> None:
    world.cache.forget(OTHER.id)
    world.twins.answering.clear()
    world.module.go_on.set()
    world.ask("1")
    await eventually(lambda: world.gateway._incoming.waiting)
    world.stop.set()
    await asyncio.sleep(0)  # stopping has begun
    world.twins.answering.set()
    await world.ends()
    assert world.module.notes == ["begins 1", "ends 1", "stops"]


async def test_nothing_begins_at_a_module_that_stops(world: World) -> None:
    """No handler starts at a module that stops.

    A service still gets its requests: they wait for it in Redis.
    """
    module, counters = world.module, world.gateway.counters
    module.stop.clear()
    world.stop.set()
    await module.stopping.wait()
    world.ask("late")
    world.ask("served", "out.age")
    await eventually(lambda: counters["dropped:ending"] == 1)
    deadline = int(time.time()) + 60
    request = Request("own", Address(OTHER.id), "count.it", b"", None, None, deadline)
    assert module.context is not None
    with pytest.raises(CommandError, match="the gateway ends") as caught:
        await module.context.deliver(request)
    assert caught.value.code == FileCode.BUSY, "or who offers a file gives up"
    await world.ends()
    assert module.notes == ["stops"]
    assert world.answers() == {"late": "the gateway ends: ask again"}
    (served,) = world.redis.run("LRANGE", "msgbus.out.age", 0, -1)
    assert json.loads(served)["cmd"] == "out.age"

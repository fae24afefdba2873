"""`relay.sessions.rights`: sessions end when changes to their twins end their right to be here."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from typing import Any

import pytest

from proto.federation.domains import fold
from redispipe.address import RedisAddress
from relay.queues import keys
from relay.sessions import rights
from relay.sessions.admission import Admission
from relay.sessions.options import WorkerOptions
from relay.sessions.worker import Worker
from relay.twins import services
from relay.twins.cache import TwinCache
from relay.twins.look_ups import LookUps
from relay.twins.source import TwinRecord
from tests.relay.twins.sources import ScriptedSource
from tests.support.identities import twin
from tests.support.redis_servers import RedisServer
from tests.support.waiting import eventually

WITHIN_S = 1.5  # one second, and a margin for a busy machine
CHANGED = (4006, "twin_changed")
OTHER_ACCOUNT = twin(99).account


class Socket:
    """A connection whose client sends nothing and accepts everything."""

    written = 0
    remote = "192.0.2.1:5000"
    last_received = math.inf

    def __init__(self) -> None:
        self.end: tuple[int, str] | None = None

    def start(self, receiver: Any, account: Any = None) -> None: ...

    def send_messages(self, payloads: list[bytes]) -> int:
        return 0

    def buffered_bytes(self) -> int:
        return 0

    def acknowledged(self) -> int:
        return 0

    def drained(self) -> bool:
        return True

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self, code: int, reason: str) -> None:
        self.end = self.end or (code, reason)

    def abort(self) -> None: ...


class World:
    """A worker with a real Redis, its source of twins, and its sessions."""

    def __init__(self, server: RedisServer) -> None:
        self.server = server
        self.source = ScriptedSource()
        self.relays = {1: ("localhost",), 2: ("away.example", "localhost"), 3: ("away.example",)}
        for number, names in self.relays.items():
            self.put(number, names)
        address = RedisAddress.parse(server.url)
        self.worker = Worker(
            WorkerOptions("boot", frozenset({fold("localhost")})),
            address.connect,
            address.opening("boot"),
            TwinCache(self.source, lambda *words: self.worker.commit.pipe.ask(*words)),
        )

    def put(self, number: int, names: tuple[str, ...], account: bytes | None = None) -> None:
        account = twin(number).account if account is None else account
        self.source.twins[number] = TwinRecord(number, account, None, tuple(map(fold, names)), 1)

    async def open(self, number: int, sid: str = "s") -> Socket:
        record = await self.worker.twins.look_up(number)
        assert record is not None
        socket = Socket()
        session = self.worker.open((number, sid), socket, record)
        await eventually(lambda: session.live)
        return socket

    def announce(self, *changed: int, told: bool = True) -> None:
        """Announce changes like `services.announce`; unless `told`, the message is lost."""
        channel = keys.TWINS_CHANNEL if told else "nobody"
        self.server.run(
            "EVAL", services.ANNOUNCE_SCRIPT, 2, keys.TWINS, keys.TWINS_VERSION, channel, *changed
        )


@pytest.fixture
async def world(valkey: RedisServer) -> AsyncIterator[World]:
    found = World(valkey)
    found.worker.start()
    await found.worker.until_usable()
    await eventually(lambda: found.worker.upkeep.control.known)
    yield found
    await found.worker.stop()
    await found.worker.twins.close()


async def settled(world: World, *changed: int) -> None:
    """Announce changes, and wait until the worker has handled them."""
    before = len(world.source.fetches)
    world.announce(*changed)
    await world.source.asked_times(before + 1)
    await eventually(lambda: not world.worker.rights._checking)


@pytest.mark.parametrize("told", [True, False])
async def test_a_removed_twin_has_no_session(world: World, told: bool) -> None:
    sockets = [await world.open(1, "a"), await world.open(1, "b")]
    bystander = await world.open(2)
    del world.source.twins[1]
    world.announce(1, told=told)
    await eventually(lambda: [each.end for each in sockets] == [CHANGED, CHANGED], WITHIN_S)
    assert bystander.end is None
    assert world.worker.connections == 1


async def test_a_session_is_of_the_account_that_signed_in(world: World) -> None:
    socket = await world.open(1)
    world.put(1, ("localhost",), OTHER_ACCOUNT)
    world.announce(1)
    await eventually(lambda: socket.end == CHANGED, WITHIN_S)
    later = await world.open(1)
    await settled(world, 1)
    assert later.end is None


async def test_a_twin_that_moved_to_other_relays_is_a_guest_or_nobody(world: World) -> None:
    socket, other = await world.open(1), await world.open(2)
    world.put(1, ("away.example",))
    world.put(2, ("localhost", "third.example"))
    world.announce(1, 2)
    await eventually(lambda: socket.end == CHANGED, WITHIN_S)
    guest = await world.open(1)
    await settled(world, 1, 2)
    assert (guest.end, other.end) == (None, None)


async def test_a_guest_stays_one_whatever_its_other_relays(world: World) -> None:
    guest = await world.open(3)
    world.put(3, ("third.example",))
    await settled(world, 3)
    assert guest.end is None
    del world.source.twins[3]
    world.announce(3)
    await eventually(lambda: guest.end == CHANGED, WITHIN_S)


async def test_a_guest_whose_twin_comes_here_becomes_a_member(world: World) -> None:
    socket = await world.open(3)
    (session,) = world.worker.sessions

    def guests() -> set[bytes]:
        return set(world.server.run("SMEMBERS", keys.GUESTS))

    await eventually(lambda: guests() == {b"3:s"})
    world.put(3, ("localhost",))
    await settled(world, 3)
    await eventually(lambda: not guests() and not world.worker.guests.everywhere)
    assert socket.end is None and not session.guest
    world.put(3, ("away.example",))
    world.announce(3)
    await eventually(lambda: socket.end == CHANGED, WITHIN_S)


async def test_twins_that_did_not_change_are_not_looked_up(world: World) -> None:
    await world.open(1)
    await world.open(2)
    await settled(world, 1)
    await world.worker.upkeep._versions()  # each heartbeat finds these unchanged
    await eventually(lambda: not world.worker.rights._checking)
    assert [set(each) for each in world.source.fetches] == [{1}, {2}, {1}]


async def test_a_source_that_is_away_is_asked_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rights, "AGAIN_S", 0.1)
    socket = await world.open(1)
    world.source.away = True
    await settled(world, 1)
    assert socket.end is None, "what was known counts"
    del world.source.twins[1]
    world.source.away = False
    await eventually(lambda: socket.end == CHANGED, 5)


async def test_a_change_that_overtakes_a_sign_in(world: World) -> None:
    """The session ends although its look-up returned the state before the change.

    The change was announced before the session existed.
    """
    look_ups = LookUps(world.worker.twins, on_chain=False, per_ip_per_s=0)
    admission = Admission(
        world.worker,
        look_ups,
        handshakes_per_ip_per_s=0,
        max_sid_bytes=128,
        max_token_lifetime_s=0,
    )
    socket = Socket()

    async def sign_in() -> None:
        admitted = await admission.admit(twin(1).token("s").encode(), "192.0.2.1")
        world.worker.open(admitted.key, socket, admitted.twin)

    world.source.open.clear()
    signing_in = asyncio.create_task(sign_in())
    await world.source.asked_times(1)
    del world.source.twins[1]
    generation = world.worker.twins.generation
    world.announce(1)
    await eventually(lambda: world.worker.twins.generation > generation)
    world.source.open.set()
    await signing_in
    await eventually(lambda: socket.end == CHANGED, WITHIN_S)

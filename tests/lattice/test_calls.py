"""Tests of provider, actor and caller on a real server: calls, sizes, errors, links, bounds."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace

import msgpack
import pytest
from nats.aio.msg import Msg

from lattice.actor import LatticeActor
from lattice.caller import LatticeCaller
from lattice.connection import LatticeConnection
from lattice.control import ControlClient
from lattice.errors import LatticeError, NoRespondersError, RemoteError
from lattice.options import LatticeOptions, options_of
from lattice.provider import LatticeProvider
from lattice.registry import Registry
from lattice.serving import Call, OperationError
from proto.lattice.control import Control
from proto.lattice.entity import Entity
from proto.lattice.host_data import HostData
from proto.lattice.messages import LinkDefinition, decode_response
from proto.lattice.nkeys import KeyKind, KeyPair
from proto.lattice.registry import ProviderClaims
from proto.lattice.subjects import SubjectKind, actor_subject, provider_subject
from tests.support.waiting import eventually

CLUSTER = KeyPair(KeyKind.CLUSTER, bytes(range(32)))
ACTOR = KeyPair(KeyKind.ACTOR, bytes(range(0x40, 0x60))).public
OTHER = KeyPair(KeyKind.ACTOR, bytes(range(0x41, 0x61))).public
PROVIDER = KeyPair(KeyKind.PROVIDER, bytes(range(0x60, 0x80))).public
HOST = KeyPair(KeyKind.HOST, bytes(range(0x20, 0x40))).public
LINK = LinkDefinition(ACTOR, PROVIDER, "default", "test:echo", {"a": "1"})
TARGET = Entity.provider(PROVIDER, "default", "test:echo")


@pytest.fixture
def options(options: LatticeOptions) -> LatticeOptions:
    return replace(options, cluster_seed=CLUSTER.seed, host_id=HOST)


async def echo(call: Call) -> bytes:
    return call.payload


@pytest.fixture
async def provider(connection: LatticeConnection) -> AsyncIterator[LatticeProvider]:
    started = LatticeProvider(connection, PROVIDER, "test:echo", links=(LINK,))
    started.operation("Echo.Echo")(echo)
    await started.start()
    yield started
    await started.stop()


@pytest.mark.parametrize("size", [0, 256, 921_600, 921_601, 3_000_000])
async def test_payloads_of_all_sizes(
    provider: LatticeProvider, connection: LatticeConnection, size: int
) -> None:
    payload = bytes(range(256)) * (size // 256) + bytes(size % 256)
    caller = LatticeCaller(connection, ACTOR)
    assert await caller.call(TARGET, "Echo.Echo", payload) == payload
    await caller.close()


async def test_a_provider_calls_an_actor(
    provider: LatticeProvider, connection: LatticeConnection
) -> None:
    actor = LatticeActor(connection, ACTOR)
    actor.operation("Echo.Echo")(echo)
    await actor.start()
    assert await provider.call(Entity.actor(ACTOR), "Echo.Echo", b"x") == b"x"
    assert await actor.call(TARGET, "Echo.Echo", b"y") == b"y"
    health = await provider.call(Entity.actor(ACTOR), "Actor.HealthRequest")
    assert msgpack.unpackb(health) == {"healthy": True}
    await actor.stop()
    with pytest.raises(NoRespondersError):
        await provider.call(Entity.actor(ACTOR), "Echo.Echo")


async def test_refused_and_failed_calls_are_answered(
    provider: LatticeProvider, connection: LatticeConnection, options: LatticeOptions
) -> None:
    @provider.operation("Echo.Refuse")
    async def refuse(call: Call) -> None:
        raise OperationError("no, thanks")

    @provider.operation("Echo.Break")
    async def break_(call: Call) -> None:
        raise ValueError("secret")

    caller = LatticeCaller(connection, ACTOR)
    for operation, text in [
        ("Echo.Refuse", "no, thanks"),
        ("Echo.Break", "the handler failed"),
        ("Echo.Missing", "Invalid method name Echo.Missing"),
    ]:
        with pytest.raises(RemoteError, match=text) as found:
            await caller.call(TARGET, operation)
        assert "secret" not in str(found.value)
    with pytest.raises(RemoteError, match="is not linked to this provider"):
        await LatticeCaller(connection, OTHER).call(TARGET, "Echo.Echo")
    stranger = KeyPair(KeyKind.CLUSTER, bytes(32))
    foreign = replace(options, cluster_seed=stranger.seed)
    async with LatticeConnection(foreign) as other:
        with pytest.raises(RemoteError, match="not in list of cluster issuers"):
            await LatticeCaller(other, ACTOR).call(TARGET, "Echo.Echo")


@pytest.mark.parametrize("data", [b"", b"\xff", b"\x91" * 5000, b"\xdf\xff\xff\xff\xff", b"{}"])
async def test_undecodable_calls_are_answered(
    provider: LatticeProvider, connection: LatticeConnection, data: bytes
) -> None:
    subject = provider_subject(connection.options.lattice, PROVIDER, "default")
    answer = decode_response(await connection.request(subject, data, 5))
    assert answer.invocation_id == ""
    assert "Error when attempting to deserialize invocation" in (answer.error or "")
    assert provider.serving.counts["undecodable"] == 1


async def test_links_come_change_and_go(
    provider: LatticeProvider, connection: LatticeConnection
) -> None:
    told: list[tuple[str, str]] = []

    async def linked(link: LinkDefinition) -> None:
        told.append(("put", link.values["a"]))

    async def unlinked(link: LinkDefinition) -> None:
        told.append(("del", link.values["a"]))

    provider.on_link, provider.on_unlink = linked, unlinked
    lattice = connection.options.lattice
    put = provider_subject(lattice, PROVIDER, "default", SubjectKind.LINK_PUT)
    delete = provider_subject(lattice, PROVIDER, "default", SubjectKind.LINK_DEL)
    changed = replace(LINK, values={"a": "2"})
    for link in [
        LINK,
        changed,
        changed,
        replace(changed, provider_id="V"),
    ]:
        await connection.publish(put, link.encode())
    await connection.publish(put, b"\xff")
    await connection.publish(delete, changed.encode())
    await connection.publish(delete, changed.encode())
    await eventually(lambda: not provider.links)
    assert told == [("del", "1"), ("put", "2"), ("del", "2")]


async def test_health_and_shutdown(
    provider: LatticeProvider, connection: LatticeConnection
) -> None:
    lattice = connection.options.lattice
    health = provider_subject(lattice, PROVIDER, "default", SubjectKind.HEALTH)
    assert msgpack.unpackb(await connection.request(health, b"", 5)) == {"healthy": True}
    begun, release = asyncio.Event(), asyncio.Event()

    @provider.operation("Echo.Slow")
    async def slow(call: Call) -> bytes:
        begun.set()
        await release.wait()
        return b"done"

    calling = asyncio.create_task(LatticeCaller(connection, ACTOR).call(TARGET, "Echo.Slow"))
    await begun.wait()
    shutdown = provider_subject(lattice, PROVIDER, "default", SubjectKind.SHUTDOWN)
    await connection.publish(shutdown, b'{"host_id":"N"}', "nobody")
    await connection.publish(shutdown, b"\xff", "nobody")
    body = json.dumps({"host_id": HOST}).encode()
    stopping = asyncio.create_task(connection.request(shutdown, body, 5))
    await asyncio.wait([stopping], timeout=0.1)
    assert not stopping.done()
    release.set()
    assert await calling == b"done"
    assert await stopping == b"shutting down"
    async with asyncio.timeout(5):  # the answer is sent before the provider stops
        await provider.stopped.wait()


async def test_three_members_share_calls(options: LatticeOptions) -> None:
    served: Counter[int] = Counter()

    async def member(number: int) -> LatticeActor:
        connection = LatticeConnection(options)
        await connection.open()
        actor = LatticeActor(connection, ACTOR)

        @actor.operation("Count.One")
        async def one(call: Call) -> bytes:
            served[number] += 1
            return call.payload

        await actor.start()
        return actor

    members = [await member(number) for number in range(3)]
    async with LatticeConnection(options) as connection:
        caller = LatticeCaller(connection, OTHER)
        bodies = [str(number).encode() for number in range(1_000)]
        target = Entity.actor(ACTOR)
        calls = [caller.call(target, "Count.One", body, 20) for body in bodies]
        assert await asyncio.gather(*calls) == bodies
    assert served.total() == 1_000
    assert len(served) == 3
    for actor in members:
        await actor.stop()
        await actor._connection.close()


async def test_calls_above_the_bound_and_slow_ones_get_an_error(options: LatticeOptions) -> None:
    bounded = replace(options, max_running=5, handler_timeout_s=0.3)
    async with LatticeConnection(bounded) as connection:
        actor = LatticeActor(connection, ACTOR)

        @actor.operation("Wait.Long")
        async def wait(call: Call) -> None:
            await asyncio.Event().wait()

        await actor.start()
        caller = LatticeCaller(connection, OTHER)
        calls = [caller.call(Entity.actor(ACTOR), "Wait.Long", timeout_s=20) for _ in range(20)]
        texts = [str(each) for each in await asyncio.gather(*calls, return_exceptions=True)]
        assert sum("no result within 0.3 s" in text for text in texts) == 5
        assert sum("busy" in text for text in texts) == 15
        await actor.stop()


async def test_a_short_host_id_never_leaves(connection: LatticeConnection) -> None:
    heard: list[object] = []
    await connection.subscribe(actor_subject(connection.options.lattice, ACTOR), heard.append)
    caller = LatticeCaller(connection, OTHER)
    for host_id in ("", "NA", ACTOR):
        caller.host_id = host_id
        with pytest.raises(LatticeError, match="invalid key"):
            await caller.call(Entity.actor(ACTOR), "Echo.Echo")
    await connection.flush()
    assert not heard


async def test_a_provider_registers_and_reads_its_links(connection: LatticeConnection) -> None:
    control = Control(connection.options.lattice)
    other = replace(LINK, provider_id="V", actor_id=OTHER)
    body = json.dumps({"links": [LINK.to_record(), other.to_record()]}).encode()
    answering: list[asyncio.Task[None]] = []

    def answer(message: Msg) -> None:
        answering.append(asyncio.create_task(connection.publish(message.reply, body)))

    await connection.subscribe(control.get_links().subject, answer)
    provider = LatticeProvider(connection, PROVIDER, "test:echo", name="Echo")
    await provider.start()
    assert provider.links == {ACTOR: LINK}
    registry = Registry(connection)
    assert await registry.get(PROVIDER) == ProviderClaims(PROVIDER, "Echo", "test:echo")
    await registry.delete(PROVIDER)
    assert await registry.get(PROVIDER) is None
    await provider.stop()


async def test_control_answers_that_lie(connection: LatticeConnection) -> None:
    answering: list[asyncio.Task[None]] = []

    def answer(message: Msg) -> None:
        answering.append(asyncio.create_task(connection.publish(message.reply, b'{"x":[[]]}')))

    await connection.subscribe(f"wasmbus.ctl.{connection.options.lattice}.>", answer)
    client = ControlClient(connection, 0.2)
    assert await client.hosts() == []
    for asking in (client.links(), client.claims(), client.inventory(HOST), client.put_link(LINK)):
        with pytest.raises(LatticeError):
            await asking


async def test_ten_thousand_calls_outstanding(options: LatticeOptions) -> None:
    async with LatticeConnection(replace(options, max_outstanding=10_000)) as connection:
        actor = LatticeActor(connection, ACTOR)
        release = asyncio.Event()
        most = 0

        @actor.operation("Wait.Long")
        async def wait(call: Call) -> bytes:
            nonlocal most
            most = max(most, actor.serving.running)
            await release.wait()
            return b"done"

        await actor.start()
        caller = LatticeCaller(connection, OTHER)
        calls = [
            asyncio.create_task(caller.call(Entity.actor(ACTOR), "Wait.Long", timeout_s=60))
            for _ in range(10_001)
        ]
        await eventually(lambda: actor.serving.counts["busy"] >= 9_000, 60)
        release.set()
        ended = await asyncio.gather(*calls, return_exceptions=True)
        counts = Counter(type(each).__name__ for each in ended)
        assert counts == {"bytes": 1_000, "RemoteError": 9_000, "TooManyCallsError": 1}
        await actor.stop()


async def test_host_data_makes_options() -> None:
    data = HostData(HOST, "l", "default", PROVIDER, CLUSTER.seed, (CLUSTER.public,), (LINK,),
                    rpc_timeout_ms=500)  # fmt: skip
    options = options_of(data)
    assert (options.lattice, options.host_id, options.call_timeout_s) == ("l", HOST, 0.5)
    made = LatticeProvider.of_host_data(LatticeConnection(options), data, "test:echo")
    assert made.origin == TARGET

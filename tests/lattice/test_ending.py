"""Tests of providers and actors that end under load, are too busy, or wait for a slow hook."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import msgpack
import pytest
from nats.aio.msg import Msg

from lattice.actor import LatticeActor
from lattice.caller import LatticeCaller
from lattice.connection import LatticeConnection
from lattice.directory import Directory
from lattice.errors import NoRespondersError, ObjectStoreAwayError, RemoteError
from lattice.options import LatticeOptions
from lattice.provider import LatticeProvider
from lattice.registry import Registry
from lattice.serving import Call
from proto.lattice.entity import Entity
from proto.lattice.errors import Reason
from proto.lattice.host_data import HostData
from proto.lattice.messages import HealthCheckResponse, LinkDefinition, decode_response
from proto.lattice.nkeys import KeyKind, KeyPair
from proto.lattice.registry import ActorClaims, ProviderClaims
from proto.lattice.subjects import SubjectKind, provider_subject
from tests.proto.lattice.identities import ACTOR, CLUSTER, HOST, PROVIDER, call
from tests.support.nats_server import nats_server
from tests.support.waiting import eventually

OTHER = KeyPair(KeyKind.ACTOR, b"o" * 32).public  # TEST KEY
LINK = LinkDefinition(ACTOR.public, PROVIDER.public, "default", "test:echo", {})
TARGET = Entity.provider(PROVIDER.public, "default", "test:echo")
SHUTDOWN = b'{"host_id":"%s"}' % HOST.public.encode()
DOCUMENT = Path(__file__).parents[2] / "docs" / "howto" / "lattice.md"


@pytest.fixture
def options(options: LatticeOptions) -> LatticeOptions:
    return replace(options, cluster_seed=CLUSTER.seed, host_id=HOST.public)


def subject_of(options: LatticeOptions, kind: SubjectKind) -> str:
    return provider_subject(options.lattice, PROVIDER.public, "default", kind)


async def _by_a_host(served: LatticeProvider | LatticeActor) -> None:
    options = served._options
    async with LatticeConnection(options) as host:
        asked = host.request(subject_of(options, SubjectKind.SHUTDOWN), SHUTDOWN, 10)
        assert await asked == b"shutting down"


async def _by_itself(served: LatticeProvider | LatticeActor) -> None:
    await served.stop()


@pytest.mark.parametrize(
    ("target", "end"),
    [(TARGET, _by_itself), (TARGET, _by_a_host), (Entity.actor(ACTOR.public), _by_itself)],
    ids=["provider", "provider of a host", "actor"],
)
async def test_each_call_is_answered_by_one_that_ends(
    options: LatticeOptions,
    connection: LatticeConnection,
    target: Entity,
    end: Callable[[LatticeProvider | LatticeActor], Awaitable[None]],
) -> None:
    begun = answered = 0
    async with LatticeConnection(options) as own:
        served: LatticeProvider | LatticeActor = LatticeActor(own, ACTOR.public)
        if not target.is_actor:
            served = LatticeProvider(own, PROVIDER.public, "test:echo", links=(LINK,), name="")

        @served.operation("Echo.Echo")
        async def echo(call: Call) -> bytes:
            nonlocal begun
            begun += 1
            await own.flush()  # takes some time
            return call.payload

        await served.start()
        caller = LatticeCaller(connection, ACTOR.public)

        async def go_on() -> None:
            nonlocal answered
            while True:
                try:
                    assert await caller.call(target, "Echo.Echo", b"x", 5) == b"x"
                except NoRespondersError:
                    return
                answered += 1

        going = [asyncio.create_task(go_on()) for _ in range(50)]
        await eventually(lambda: answered > 100)
        await end(served)
        await asyncio.gather(*going)
        assert answered == begun == served.serving.counts["ok"]
        assert served.serving.running == 0
        await served.stop()


async def test_handlers_that_do_not_end_are_cancelled_and_answered(
    options: LatticeOptions, connection: LatticeConnection
) -> None:
    async with LatticeConnection(replace(options, drain_timeout_s=0.05)) as own:
        actor, begun = LatticeActor(own, ACTOR.public), asyncio.Event()

        @actor.operation("Wait.Long")
        async def wait(call: Call) -> None:
            begun.set()
            await asyncio.Event().wait()

        await actor.start()
        caller = LatticeCaller(connection, OTHER)
        calling = asyncio.create_task(caller.call(actor.origin, "Wait.Long", timeout_s=10))
        await begun.wait()
        await actor.stop()
        with pytest.raises(RemoteError, match="shutting down"):
            await calling


async def test_a_refused_call_of_a_busy_process_takes_no_task(
    options: LatticeOptions, connection: LatticeConnection
) -> None:
    async with LatticeConnection(replace(options, max_running=1)) as own:
        actor, release = LatticeActor(own, ACTOR.public), asyncio.Event()

        @actor.operation("KeyValue.Get")
        async def wait(call: Call) -> None:
            await release.wait()

        answers: list[Msg] = []
        await connection.subscribe("answers", answers.append)
        body = call(target=actor.origin, iat=int(time.time())).encode()
        client = await own.connected(1)
        messages = [Msg(client, "x", "answers", data) for data in [body] * 500 + [b"\xff"]]
        before = len(asyncio.all_tasks())
        actor.serving.receive(Msg(client, "x", "", body))
        for message in messages:
            actor.serving.receive(message)
        assert len(asyncio.all_tasks()) - before == 2  # the call, and one task to answer the rest
        await eventually(lambda: len(answers) == len(messages))
        assert "busy: 1 calls are running" in (decode_response(answers[0].data).error or "")
        assert decode_response(answers[0].data).invocation_id
        assert actor.serving.counts == {Reason.BUSY: 500, Reason.UNDECODABLE: 1}
        release.set()
        await actor.stop()


async def test_a_slow_link_delays_neither_health_nor_shutdown(
    options: LatticeOptions, connection: LatticeConnection
) -> None:
    linking, checking = asyncio.Event(), asyncio.Event()

    async def link_for_ever(link: LinkDefinition) -> None:
        linking.set()
        await asyncio.Event().wait()

    async def check_for_ever() -> HealthCheckResponse:
        checking.set()
        await asyncio.Event().wait()
        raise AssertionError

    health = subject_of(options, SubjectKind.HEALTH)
    async with LatticeConnection(replace(options, call_timeout_s=0.4)) as own:
        provider = LatticeProvider(own, PROVIDER.public, "test:echo", name="")
        provider.on_link = link_for_ever
        await provider.start()
        await connection.publish(subject_of(options, SubjectKind.LINK_PUT), LINK.encode())
        await linking.wait()
        assert msgpack.unpackb(await connection.request(health, b"", 2)) == {"healthy": True}
        provider.health = check_for_ever
        asking = asyncio.create_task(connection.request(health, b"", 5))
        await checking.wait()
        shutdown = subject_of(options, SubjectKind.SHUTDOWN)
        assert await connection.request(shutdown, SHUTDOWN, 2) == b"shutting down"
        async with asyncio.timeout(5):
            await provider.stopped.wait()
        assert not msgpack.unpackb(await asking)["healthy"]
        await provider.stop()


async def test_one_link_at_a_time_is_applied(connection: LatticeConnection) -> None:
    provider = LatticeProvider(connection, PROVIDER.public, "test:echo")
    told: list[str] = []

    async def linked(link: LinkDefinition) -> None:
        told.append(link.actor_id)
        await connection.flush()

    provider.on_link = linked
    await asyncio.gather(*(provider.put_link(LINK) for _ in range(3)))
    assert told == [ACTOR.public]


async def test_an_actor_with_a_name_is_in_the_registry(connection: LatticeConnection) -> None:
    registry = Registry(connection)
    for actor in (
        LatticeActor(connection, OTHER),
        LatticeActor(connection, ACTOR.public, call_alias="echo"),
    ):
        await actor.start()
        await actor.stop()
    assert await registry.get(OTHER) is None
    claims = ActorClaims(ACTOR.public, "echo", call_alias="echo")
    assert await registry.get(ACTOR.public) == claims
    await registry.put(ProviderClaims(PROVIDER.public, "store", "test:store"))
    await registry.delete(PROVIDER.public)
    assert await registry.claims() == [claims]
    for kept, found in ((registry, ACTOR.public), (None, None)):
        directory = Directory(connection, kept)
        await directory.look()
        assert directory.actor_of("echo") == found, "no host runs"


async def test_small_payloads_need_no_jetstream(
    tmp_path: Path, options: LatticeOptions, caplog: pytest.LogCaptureFixture
) -> None:
    with nats_server(tmp_path, jetstream=False) as server:
        async with LatticeConnection(replace(options, servers=(server.url,))) as connection:
            provider = LatticeProvider(connection, PROVIDER.public, "test:echo", links=(LINK,))

            @provider.operation("Echo.Grow")
            async def grow(call: Call) -> bytes:
                return call.payload * 1_000_000

            await provider.start()
            assert "actors on hosts will refuse our calls: cannot" in caplog.text
            caller = LatticeCaller(connection, ACTOR.public)
            assert await caller.call(TARGET, "Echo.Grow") == b""
            with pytest.raises(ObjectStoreAwayError, match="enable it on the NATS server"):
                await caller.call(TARGET, "Echo.Grow", bytes(1_000_000))
            with pytest.raises(RemoteError, match=r"Error when chunking data: .* enable it on"):
                await caller.call(TARGET, "Echo.Grow", b"x")
            assert provider.serving.counts == {"ok": 1, Reason.PAYLOAD_MISSING: 1}
            await caller.close()
            await provider.stop()


async def test_the_documented_provider_of_a_host(
    options: LatticeOptions, connection: LatticeConnection
) -> None:
    (program,) = (
        block
        for block in DOCUMENT.read_text().split("```")
        if block.startswith("python") and "decode_host_data" in block
    )
    data = HostData(
        HOST.public, options.lattice, "default", PROVIDER.public, CLUSTER.seed,
        (CLUSTER.public,), (replace(LINK, contract_id="example:echo"),), options.servers[0],
    )  # fmt: skip
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", program.removeprefix("python\n")),
        stdin=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdin is not None
    process.stdin.write(data.encode())
    process.stdin.write_eof()
    health = subject_of(options, SubjectKind.HEALTH)
    shutdown = subject_of(options, SubjectKind.SHUTDOWN)
    target = replace(TARGET, contract_id="example:echo")
    try:
        async with asyncio.timeout(60):
            while True:
                try:
                    await connection.request(health, b"", 5)
                    result = await LatticeCaller(connection, ACTOR.public).call(
                        target, "Echo.Echo", b"x"
                    )
                    break
                except NoRespondersError:
                    assert process.returncode is None
                    await asyncio.sleep(0.02)
            assert result == b"x"
            assert await connection.request(shutdown, SHUTDOWN, 5) == b"shutting down"
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
    assert await Registry(connection).get(PROVIDER.public) is None  # the host makes the entry

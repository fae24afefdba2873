"""Twins and actors that call each other through relay, bridge and NATS."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgpack
import pytest

from lattice.actor import LatticeActor
from lattice.connection import LatticeConnection
from lattice.control import ControlClient
from lattice.errors import LatticeError
from lattice.errors import RemoteError as LatticeRemoteError
from lattice.options import LatticeOptions
from lattice.provider import LatticeProvider
from lattice.serving import Call, OperationError
from peer.client import Client, PeerError, RemoteError, Request, Response
from proto.lattice.entity import Entity
from proto.lattice.messages import LinkDefinition
from proto.lattice.nkeys import KeyKind, KeyPair, encode_public
from proto.lattice.twin_contract import (
    CALL,
    CONTRACT,
    HANDLE_REQUEST,
    SEND,
    TwinReply,
    TwinRequest,
    decode_reply,
    decode_request,
    encode_reply,
    encode_request,
)
from relay.queues import keys
from tests.e2e.conftest import _shared
from tests.support.identities import Twin
from tests.support.lattice_host import ControlHost
from tests.support.nats_server import nats_server
from tests.support.relay_process import RelayProcess, run_command
from tests.support.waiting import eventually
from tests.support.world import all_twins_csv, fresh_twins

ACTOR, CLUSTER, PROVIDER, OTHER_PROVIDER = (
    KeyPair.of_random(kind, bytes([number]) * 32)  # TEST KEYS
    for number, kind in enumerate(
        (KeyKind.ACTOR, KeyKind.CLUSTER, KeyKind.PROVIDER, KeyKind.PROVIDER), 21
    )
)
BRIDGE_ACTOR = encode_public(KeyKind.ACTOR, PROVIDER.raw_public)
"""Actor that the bridge uses to call providers."""
BRIDGE = Entity.provider(PROVIDER.public, "default", CONTRACT)
(BRIDGE_TWIN,) = fresh_twins(1)
LATTICE = "bridged"


class World(NamedTuple):
    """A relay with a bridge, and the options of its lattice."""

    relay: RelayProcess
    options: LatticeOptions
    twins: Path

    def client(self, twin: Twin, **more: Any) -> Client:
        secret = f"0x{twin.mini_secret.hex()}"  # TEST KEY
        return Client(secret, [self.relay.url], self.twins, timeout=10, **more)

    async def manage(self, *arguments: str) -> str:
        """Run `rmb_lattice`, while the actors and hosts of this process keep running."""
        done = await asyncio.to_thread(
            run_command,
            self.relay.folder,
            "rmb_lattice",
            *arguments,
            settings=self.relay.settings,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    async def allow(self, name: str, direction: str, names: str, **more: str) -> None:
        given = {"twins": "*", "entities": "*", **more}
        options = [f"--{key.replace('_', '-')}={value}" for key, value in given.items()]
        await self.manage("put-policy", f"--name={name}", f"--direction={direction}",
                    f"--names={names}", *options)  # fmt: skip

    def queued(self, twin: Twin) -> bytes:
        """Return the messages in a twin's queue, as stored in Redis."""
        assert self.relay.redis is not None
        found = self.relay.redis.run("XRANGE", keys.stream(str(twin.id)), "-", "+")
        return b"".join(field for _, fields in found for field in fields.values())

    async def rows(self, word: str) -> list[dict[str, Any]]:
        """Return the entries that `rmb_lattice` lists under a subcommand."""
        found: list[dict[str, Any]] = json.loads(await self.manage(word, "--json"))
        return found


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, data_template: Path) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("lattice")
    files = {
        "cluster_seed_file": CLUSTER.seed,
        "provider_seed_file": PROVIDER.seed,
        "twin_secret_file": f"0x{BRIDGE_TWIN.mini_secret.hex()}",
    }
    for name, text in files.items():
        (folder / name).write_text(text)
    twins = folder / "twins.csv"
    twins.write_text(all_twins_csv())
    with nats_server(folder / "nats") as server:
        settings = {
            "lattice.enabled": "true",
            "lattice.servers": server.url,
            "lattice.name": LATTICE,
            "lattice.processes": "2",
            **{f"lattice.{name}": str(folder / name) for name in files},
        }
        options = LatticeOptions(
            servers=(server.url,), lattice=LATTICE, cluster_seed=CLUSTER.seed, call_timeout_s=10
        )
        started = _shared(tmp_path_factory, data_template, operator_site=True, settings=settings)
        for relay in started:
            found = World(relay, options, twins)
            yield found


@contextlib.asynccontextmanager
async def lattice(world: World) -> AsyncIterator[tuple[LatticeActor, ControlHost]]:
    """Start a host and an actor on it."""
    async with LatticeConnection(world.options) as connection:
        host = ControlHost(connection)
        actor = LatticeActor(connection, ACTOR.public)

        @actor.operation("Echo.Say")
        async def say(call: Call) -> bytes:
            if call.payload == msgpack.packb("fail"):
                raise OperationError("not today")
            return call.payload

        host.actors.append(ACTOR.public)
        host.claims.append({"sub": ACTOR.public, "call_alias": "echo", "name": "an actor"})
        await host.start()
        await actor.start()
        try:
            yield actor, host
        finally:
            await actor.stop()


async def serving(world: World) -> None:
    """Wait until a bridge holds the session of its twin."""

    async def is_serving() -> bool:
        return any(each["twin"] == BRIDGE_TWIN.id for each in await world.rows("processes"))

    await eventually(is_serving)


async def test_a_twin_calls_an_actor(world: World) -> None:
    alice, bob = fresh_twins(2)
    await serving(world)
    async with (
        lattice(world) as (actor, _),
        world.client(alice) as client,
        world.client(bob) as other,
    ):
        command = f"lattice.{ACTOR.public}.Echo.Say"
        with pytest.raises(RemoteError, match="bridge: no policy allows twin") as caught:
            await client.call(BRIDGE_TWIN.id, command, "hello")
        assert caught.value.code == 403
        await world.allow("echo", "to_lattice", "Echo.*", twins=str(alice.id), per_s="50")

        async def called() -> bool:
            with contextlib.suppress(RemoteError):
                return bool((await client.call(BRIDGE_TWIN.id, command, "hello")).json() == "hello")
            return False

        await eventually(called)
        raw = await client.call(BRIDGE_TWIN.id, command, b"\0raw", schema="a/b")
        assert (raw.payload, raw.schema) == (b"\0raw", "a/b")

        async def by_alias() -> bool:
            with contextlib.suppress(RemoteError):
                reply = await client.call(BRIDGE_TWIN.id, "lattice.echo.Echo.Say", {"a": [1]})
                return bool(reply.json() == {"a": [1]})
            return False

        await eventually(by_alias)
        provider = LatticeProvider(
            actor._connection, OTHER_PROVIDER.public, "test:echo", "main", name=""
        )
        provider.serving.handlers["Echo.Say"] = actor.serving.handlers["Echo.Say"]
        await provider.start()
        link = LinkDefinition(BRIDGE_ACTOR, OTHER_PROVIDER.public, "main", "test:echo")
        await ControlClient(actor._connection).put_link(link)

        async def by_link() -> bool:
            to_provider = f"lattice.{OTHER_PROVIDER.public}.main.Echo.Say"
            with contextlib.suppress(RemoteError):
                return (await client.call(BRIDGE_TWIN.id, to_provider, ["y"])).json() == ["y"]
            return False

        await eventually(by_link)
        await provider.stop()
        release = asyncio.Event()

        @actor.operation("Bound.Wait")
        async def wait(call: Call) -> None:
            await release.wait()

        await world.allow(
            "bound", "to_lattice", "Bound.*", per_s="1", max_bytes="4", timeout_ms="100"
        )
        bound = command.replace("Echo.Say", "Bound.Wait")

        async def is_too_large() -> bool:
            with pytest.raises(RemoteError) as caught:
                await client.call(BRIDGE_TWIN.id, bound, b"12345", schema="a/b")
            return caught.value.code == 413

        await eventually(is_too_large)
        for code, text in ((504, "actor: no answer"), (429, "bridge: .* allows 1 calls a second")):
            with pytest.raises(RemoteError, match=text) as caught:
                await client.call(BRIDGE_TWIN.id, bound, b"1234", schema="a/b")
            assert caught.value.code == code
        release.set()
        for asked, body, code, text in (
            (command, "fail", 500, "actor: not today"),
            (command.replace("Say", "Other"), None, 500, "Invalid method name Echo.Other"),
            (command.replace("Echo.", "Secret."), None, 403, "bridge: no policy"),
            ("lattice.nobody.Echo.Say", None, 404, "no actor with the call alias nobody"),
            ("lattice.echo", None, 400, "expected lattice.<actor or alias>.<operation>"),
            ("unknown.command", None, 404, "no linked actor serves the command"),
        ):
            with pytest.raises(RemoteError, match=text.replace("[", r"\[")) as caught:
                await client.call(BRIDGE_TWIN.id, asked, body)
            assert caught.value.code == code, asked
        with pytest.raises(RemoteError, match="no policy allows twin"):
            await other.call(BRIDGE_TWIN.id, command, "hello")
    with pytest.raises(RemoteError, match="lattice: no responders") as caught:
        async with world.client(alice) as client:
            await client.call(BRIDGE_TWIN.id, command, "hello")
    assert caught.value.code == 503


async def test_an_actor_calls_a_twin_and_serves_one(world: World) -> None:
    alice, bob = fresh_twins(2)
    await serving(world)

    async def add(request: Request) -> int:
        return sum(request.json())

    async with lattice(world) as (actor, host), world.client(bob, sid=None) as twin:
        twin.serve({"calc.add": add})
        asked = TwinRequest(bob.id, "calc.add", b"[1,2]", schema="application/json")
        with pytest.raises(LatticeRemoteError, match="is not linked to this provider"):
            await actor.call(BRIDGE, CALL, encode_request(asked))
        await world.manage(
            "put-link", f"--actor-id={ACTOR.public}", f"--contract-id={CONTRACT}",
            f"--provider-id={PROVIDER.public}",
            "--values", f"twins={alice.id}, {bob.id}", "commands=calc.*", "serves=weather.*",
        )  # fmt: skip
        assert host.links[ACTOR.public, CONTRACT, "default"].provider_id == PROVIDER.public
        await world.allow("calc", "to_twin", "calc.*, other.*")

        async def answered() -> bool:
            with contextlib.suppress(LatticeRemoteError):
                reply = decode_reply(await actor.call(BRIDGE, CALL, encode_request(asked)))
                return reply == TwinReply(b"3", "application/json")
            return False

        await eventually(answered)
        for other, text in (
            (asked._replace(command="other.add"), "bridge: the link does not allow the command"),
            (asked._replace(twin=BRIDGE_TWIN.id), "bridge: the link does not allow twin"),
            (asked._replace(command="calc.none"), f"twin: {bob.id}: unknown command"),
            (asked._replace(data=b"x"), f"twin: {bob.id}: the payload is not JSON"),
            (asked._replace(twin=0), "bridge: twin: must be an integer from 1"),
        ):
            with pytest.raises(LatticeRemoteError, match=text):
                await actor.call(BRIDGE, CALL, encode_request(other))
        uid = msgpack.unpackb(await actor.call(BRIDGE, SEND, encode_request(asked)))
        assert isinstance(uid, str) and uid

        @actor.operation(HANDLE_REQUEST)
        async def handle(call: Call) -> bytes:
            request = decode_request(call.payload)
            assert 9_000 < request.timeout_ms <= 11_000
            return encode_reply(TwinReply(f"{request.twin} {request.command}".encode(), "a/b"))

        await world.allow("weather", "to_lattice", "weather.*")
        async with world.client(alice) as client:

            async def served() -> bool:
                with contextlib.suppress(RemoteError):
                    reply = await client.call(BRIDGE_TWIN.id, "weather.today")
                    return reply.payload == f"{alice.id} weather.today".encode()
                return False

            await eventually(served)

        async def counted() -> bool:
            rows = await world.rows("calls")
            found = {(row["direction"], row["operation"]): row["calls"] for row in rows}
            return bool(found.get(("to_twin", CALL)))

        await eventually(counted)
        processes = await world.rows("processes")
        assert {(each["nats"], each["kind"]) for each in processes} == {("connected", "bridge")}
        assert len(processes) == 2

        async def listed() -> list[dict[str, Any]]:
            rows = await world.rows("links")
            return [row for row in rows if row["contract_id"] == CONTRACT]

        (link,) = await eventually(listed)
        assert link["value_names"] == "commands, serves, twins"
        called = json.loads(
            await world.manage(
                "call", "--target=echo", "--operation=Echo.Say", '--data=["x"]', "--json"
            )
        )
        assert json.loads(called["result"]) == ["x"]
        await world.manage("delete-link", ACTOR.public, CONTRACT, "--yes")

        async def unlinked() -> bool:
            try:
                await actor.call(BRIDGE, CALL, encode_request(asked))
            except LatticeRemoteError as error:
                return "not linked" in str(error)
            return False

        await eventually(unlinked)


class Outcomes:
    """Results of calls, and how often each was executed.

    Attributes:
        done, failed: numbers of calls.
        executed: count of executions, by number.
        late: seconds by which calls ended after their deadline, at most.
    """

    def __init__(self) -> None:
        self.done: set[int] = set()
        self.failed: dict[int, str] = {}
        self.executed: Counter[bytes] = Counter()
        self.late_s = -float("inf")

    async def make(self, number: int, timeout_s: float, call: Any) -> None:
        """Make one call and record its outcome."""
        began_s = time.monotonic()
        try:
            assert await call == b"note %d" % number
            self.done.add(number)
        except (PeerError, LatticeError) as error:
            self.failed[number] = str(error)
        self.late_s = max(self.late_s, time.monotonic() - began_s - timeout_s)


async def test_a_killed_bridge_of_two(world: World) -> None:
    alice, bob = fresh_twins(2)
    await serving(world)
    to_actor, to_twin = Outcomes(), Outcomes()
    sessions: set[str | None] = set()

    async def note(request: Request) -> Response:
        to_twin.executed[request.payload] += 1
        sessions.add(request.source.connection)
        return Response(request.payload, "a/b")

    async with (
        lattice(world) as (actor, _),
        world.client(alice) as client,
        world.client(bob, sid=None) as twin,
    ):
        twin.serve({"note.one": note})

        @actor.operation("Note.One")
        async def note_one(call: Call) -> bytes:
            to_actor.executed[call.payload] += 1
            return call.payload

        async def ask_actor(number: int, timeout_s: float) -> None:
            async def call() -> bytes:
                command = f"lattice.{ACTOR.public}.Note.One"
                data = b"note %d" % number
                reply = await client.call(
                    BRIDGE_TWIN.id, command, data, schema="a/b", timeout=timeout_s
                )
                return reply.payload

            await to_actor.make(number, timeout_s, call())

        async def ask_twin(number: int, timeout_s: float) -> None:
            async def call() -> bytes:
                request = TwinRequest(bob.id, "note.one", b"note %d" % number, schema="a/b")
                answer = await actor.call(BRIDGE, CALL, encode_request(request), timeout_s)
                return decode_reply(answer).data

            await to_twin.make(number, timeout_s, call())

        await world.manage(
            "put-link", f"--actor-id={ACTOR.public}", f"--contract-id={CONTRACT}",
            f"--provider-id={PROVIDER.public}", "--values", f"twins={bob.id}", "commands=note.*",
        )  # fmt: skip
        await world.allow("note-twin", "to_twin", "note.*")
        await world.allow("note-actor", "to_lattice", "Note.*")
        number = itertools.count()

        async def both_ways() -> bool:
            one = next(number)
            await asyncio.gather(ask_actor(one, 5), ask_twin(one, 5))
            return one in to_actor.done and one in to_twin.done and len(sessions) >= 2

        await eventually(both_ways)
        held = await world.rows("processes")
        (holder,) = (each["pid"] for each in held if each["twin"] == BRIDGE_TWIN.id)
        assert len(held) == 2
        calls = []

        def make(timeout_s: float) -> int:
            one = next(number)
            asking = (ask_actor(one, timeout_s), ask_twin(one, min(timeout_s, 3)))
            calls.extend(asyncio.create_task(each) for each in asking)
            return one

        for _ in range(100):
            make(3)
        await eventually(lambda: to_actor.executed.total() > 50)
        os.kill(holder, signal.SIGKILL)
        for timeout_s in (2, 20) * 50:
            last = make(timeout_s)
        # Only the bridge can read the messages that wait for its twin.
        waiting = await eventually(lambda: world.queued(BRIDGE_TWIN))
        assert b"Note.One" in waiting and b"note " not in waiting
        await asyncio.gather(*calls)
        for outcomes in (to_actor, to_twin):
            assert set(outcomes.executed.values()) == {1}
            assert outcomes.late_s < 2
            assert len(outcomes.done) + len(outcomes.failed) == last + 1
        # After the kill the other bridge serves: calls to actors at once, calls to twins once it
        # has the session.
        assert last not in to_actor.failed, to_actor.failed[last]
        assert len(to_twin.done) > last - 100, Counter(to_twin.failed.values())

        async def restarted() -> bool:
            rows = await world.rows("processes")
            return len({each["pid"] for each in rows} - {each["pid"] for each in held}) == 1

        await eventually(restarted)
        assert await both_ways()

        # Bridges that are told to stop finish the calls in progress.
        release, begun = asyncio.Event(), asyncio.Event()

        async def slow(request: Request) -> Response:
            begun.set()
            await release.wait()
            return Response(b"done", "a/b")

        twin.serve({"note.slow": slow})
        request = TwinRequest(bob.id, "note.slow")
        answering = asyncio.create_task(actor.call(BRIDGE, CALL, encode_request(request)))
        await begun.wait()
        for pid in {each["pid"] for each in await world.rows("processes")} - {holder}:
            os.kill(pid, signal.SIGTERM)

        async def gone() -> bool:
            one = next(number)
            await ask_twin(one, 1)
            return "no responders" in to_twin.failed.get(one, "")

        await eventually(gone)
        release.set()
        assert decode_reply(await answering).data == b"done"

"""SBD beside RMB: two workers act as one server."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import itertools
import json
import os
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from proto.sbd import frames
from proto.sbd.bounds import MAX_MESSAGE_BYTES
from relay.sbd.sharing import CHANNEL
from tests.e2e.conftest import StartRelay, _shared
from tests.interop.recorded import recorded_sbd
from tests.proto.sbd.pairs import Identity
from tests.support.hook_server import hook_server
from tests.support.redis_servers import RedisServer
from tests.support.relay_process import RelayProcess, free_port
from tests.support.sbd_client import RawClient
from tests.support.waiting import eventually

NUMBERS = itertools.count(100)
SETTINGS = {"sbd.enabled": "true", "sbd.limit_kbit_per_s": "0"}
OWN_PORT = free_port()
"""Port of the listener that serves only SBD."""
NONE = frames.ZEROS + b"none" + bytes(17)


@pytest.fixture(scope="module")
def sbd(tmp_path_factory: pytest.TempPathFactory, data_template: Path) -> Iterator[RelayProcess]:
    """Start a relay with two workers and no limit."""
    settings = {**SETTINGS, "sbd.listen": f"127.0.0.1:{OWN_PORT}"}
    yield from _shared(tmp_path_factory, data_template, processes=2, settings=settings)


def fresh() -> Identity:
    return Identity(next(NUMBERS))


def client(relay: RelayProcess, identity: Identity | None = None) -> RawClient:
    return RawClient(f"ws://127.0.0.1:{relay.port}", identity or fresh())


def request(port: int, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


@contextlib.asynccontextmanager
async def on_both_workers(relay: RelayProcess) -> AsyncIterator[list[RawClient]]:
    """Open clients, at least four, until both workers have some."""
    async with contextlib.AsyncExitStack() as stack:
        clients: list[RawClient] = []

        def counts() -> list[float]:
            return [
                value for name, value in relay.metrics().items() if name.startswith("sbd_keys{")
            ]

        while not clients or min(counts()) == 0:
            for _ in range(4):
                clients.append(await stack.enter_async_context(client(relay)))
            await eventually(lambda: sum(counts()) >= len(clients))
        yield clients


async def test_packets_reach_the_right_client_on_every_worker(sbd: RelayProcess) -> None:
    async with on_both_workers(sbd) as clients:
        assert {each.idle_ms for each in clients} == {10_000}
        assert all(each.limits == [1] for each in clients)
        for source, target in itertools.product(clients, clients):  # also to itself
            for number in range(5):
                await source.forward(target.key, b"%d" % number)
        for target in clients:
            received: dict[bytes, list[bytes]] = {}
            for _ in range(5 * len(clients)):
                packet = await target.receive()
                received.setdefault(packet.key, []).append(packet.payload)
            assert set(received) == {source.key for source in clients}
            assert set(map(tuple, received.values())) == {(b"0", b"1", b"2", b"3", b"4")}
        await eventually(lambda: sbd.counted("sbd_crossed_total") > 0)


async def test_the_empty_and_the_largest_packet_and_text(sbd: RelayProcess) -> None:
    async with client(sbd) as one, client(sbd) as two:
        for payload in (b"", bytes(MAX_MESSAGE_BYTES - 32)):
            await one.forward(two.key, payload)
            assert await two.receive() == frames.Forward(one.key, payload)
        await one.send(NONE)
        text = (frames.ZEROS + b"text").decode()
        await one.send(text)
        await one.forward(two.key, b"still here")
        assert (await two.receive()).payload == b"still here"


@pytest.mark.parametrize(
    "message",
    [
        bytes(31),
        b"",
        bytes(MAX_MESSAGE_BYTES + 1),
        frames.auth_response(bytes(64)),
        frames.auth_response(b""),
    ],
    ids=["short", "empty", "large", "second response", "bad response"],
)
async def test_a_violation_ends_the_connection_without_close_frame(
    sbd: RelayProcess, message: bytes
) -> None:
    async with client(sbd) as one:
        await one.send(message)
        assert await one.ended() is None


@pytest.mark.parametrize(
    "message",
    [
        frames.auth_response(bytes(64)),
        frames.forward(fresh().key, b"early"),
        bytes(31),
    ],
    ids=["wrong signature", "early packet", "short"],
)
async def test_a_failed_handshake_relays_nothing(sbd: RelayProcess, message: bytes) -> None:
    async with client(sbd) as target:
        async with client(sbd).opened() as thief:
            await thief.challenge()
            await thief.send(message)
            with contextlib.suppress(ConnectionClosed):
                await thief.send(frames.forward(target.key, b"spoofed"))
            assert await thief.ended() is None
        async with client(sbd) as honest:
            await honest.forward(target.key, b"true")
            assert await target.receive() == frames.Forward(honest.key, b"true")


async def test_the_newest_proven_connection_of_a_key_is_the_one(sbd: RelayProcess) -> None:
    identity = fresh()
    async with client(sbd) as sender:
        for _ in range(6):  # whichever workers they connect to
            async with (
                client(sbd, identity) as older,
                client(sbd, identity).opened() as stranger,
            ):
                await stranger.challenge()  # knows the public key but cannot sign
                await sender.forward(identity.key, b"old")
                assert (await older.receive()).payload == b"old"
                async with client(sbd, identity) as newer:
                    assert await older.ended() is None
                    await sender.forward(identity.key, b"new")
                    assert (await newer.receive()).payload == b"new"


async def test_packets_for_nobody_are_counted(sbd: RelayProcess) -> None:
    before = sbd.counted("sbd_lost_absent_total")
    async with client(sbd) as one:
        await one.forward(fresh().key, b"lost")
        await one.forward(one.key, b"behind it")
        assert (await one.receive()).payload == b"behind it"
        await eventually(lambda: sbd.counted("sbd_lost_absent_total") == before + 1)


async def test_other_paths_are_sessions_of_rmb(sbd: RelayProcess) -> None:
    path = frames.path_of_key(fresh().key)
    for wrong in (f"{path}?x=1", f"{path}=", f"{path}/", "bad-pubkey-path"):
        with pytest.raises(InvalidStatus) as refused:
            async with RawClient(f"ws://127.0.0.1:{sbd.port}", fresh(), wrong).opened():
                pass
        assert refused.value.response.status_code in (400, 401)


@pytest.mark.parametrize("vector", recorded_sbd()["paths"], ids=lambda each: each["case"])
async def test_paths_of_a_listener_of_its_own(sbd: RelayProcess, vector: dict[str, Any]) -> None:
    """Paths are answered with the status of the reference server."""
    raw = RawClient(f"ws://127.0.0.1:{OWN_PORT}", fresh(), vector["path"][1:])
    if vector["status"] == 101:
        async with raw.opened():
            return
    with pytest.raises(InvalidStatus) as refused:
        async with raw.opened():
            pass
    answer = refused.value.response
    assert answer.status_code == vector["status"]
    assert answer.body == b"" or answer.status_code != 400


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/a/b", 404),
        ("POST", "/" + "a" * 43, 405),
        ("HEAD", "/" + "a" * 43, 405),
        ("GET", "/" + "a" * 43, 400),
        ("GET", "/metrics", 400),
    ],
)
def test_requests_to_a_listener_of_its_own(
    sbd: RelayProcess, method: str, path: str, status: int
) -> None:
    assert request(OWN_PORT, method, path)[0] == status


async def test_both_listeners_are_one_server(sbd: RelayProcess) -> None:
    async with client(sbd) as one, RawClient(f"ws://127.0.0.1:{OWN_PORT}", fresh()) as two:
        await one.forward(two.key, b"there")
        assert await two.receive() == frames.Forward(one.key, b"there")


async def test_an_illegal_key_gets_nothing(sbd: RelayProcess) -> None:
    identity = fresh()
    identity.key = bytes(28) + b"abcd"
    async with client(sbd, identity).opened() as one:
        assert await one.ended() is None
        assert one.limits == []


async def test_redis_away_and_back(sbd: RelayProcess, tmp_path: Path) -> None:
    """Without Redis, clients of one worker reach each other; all are reachable when it is back."""
    async with on_both_workers(sbd) as clients:
        redis: RedisServer = sbd.redis
        redis.kill()
        for one in clients:
            await one.forward(one.key, b"own")
            assert (await one.receive()).payload == b"own"
        for target in clients[1:]:
            await clients[0].forward(target.key, b"away")
        redis.start()

        async def reach(target: RawClient) -> None:
            while True:
                await clients[0].forward(target.key, b"back")
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.2):
                        while (await target.receive()).payload != b"back":
                            pass
                        return

        async with asyncio.timeout(60):
            for target in clients[1:]:
                await reach(target)
        await eventually(lambda: sbd.counted("sbd_lost_redis_away_total") > 0)


# --- limits ------------------------------------------------------------------------------------


async def test_an_address_has_one_limit_on_all_workers(start_relay: StartRelay) -> None:
    settings = {"sbd.enabled": "true", "sbd.limit_kbit_per_s": "8"}
    relay = start_relay(processes=2, settings=settings)
    async with on_both_workers(relay) as clients:
        share = len(clients) * 1_000_000

        async def told(count: int) -> None:
            async with asyncio.timeout(60):
                for each in clients:
                    while each.limits[-1] != count * 1_000_000:
                        await each.receive_frame()

        await told(len(clients))
        async with client(relay) as another:
            assert another.limits[-1] <= share + 1_000_000
            await told(len(clients) + 1)
        await told(len(clients))  # relaxed again
        # Data sent to one worker counts at the other: there is no second burst.
        sent, reported, size = 0, 0, 20_000 // len(clients)
        assert relay.redis is not None
        with relay.redis.client() as redis, redis.pubsub() as reports:
            reports.subscribe(CHANNEL)

            async def is_shared() -> bool:
                """Check whether workers have reported everything to each other."""
                nonlocal reported
                for each in clients:
                    await each.ping()  # fails once a worker has closed a connection
                while message := reports.get_message():
                    if message["type"] == "message":
                        reported += sum(count for *_, count in json.loads(message["data"])[1])
                return reported >= sent

            with contextlib.suppress(ConnectionClosed):
                while sent < 2 * 262_144:
                    for each in clients:
                        await each.send(frames.KEEP_ALIVE.ljust(size, b"\0"))
                        sent += size
                    await eventually(is_shared)
        assert sent < 1.4 * 262_144


async def test_a_killed_worker(start_relay: StartRelay) -> None:
    """Clients of a killed worker reconnect at once with their keys; others are not affected."""
    relay = start_relay(processes=2, settings=SETTINGS)
    assert relay.redis is not None
    with relay.redis.client() as redis:
        async with on_both_workers(relay) as clients:
            assert redis.hlen("sbd:keys") == len(clients)
            (boot, pid), *_ = relay.worker_pids().items()
            assert redis.scard(f"sbd:held:{boot}") > 0
            gone, staying = [], []
            for each in clients:
                entry = redis.hget("sbd:keys", each.key).decode()
                (gone if entry.startswith(boot) else staying).append(each)
            os.kill(pid, signal.SIGKILL)
            for each in gone:
                assert await each.ended() is None
            async with client(relay, gone[0].identity) as back:
                for source, target in itertools.product([*staying, back], repeat=2):
                    await source.forward(target.key, b"here")
                    assert await target.receive() == frames.Forward(source.key, b"here")


# --- tokens -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "size", "status"),
    [
        ("GET", "/authenticate", 0, 405),
        ("POST", "/authenticate", 10, 405),
        ("PUT", "/authenticate/", 0, 404),
        ("PUT", "/authenticate", 0, 200),
        ("PUT", "/authenticate", 1024, 200),
        ("PUT", "/authenticate", 1025, 413),
        ("PUT", "/authenticate", 1_000_000, 413),
    ],
)
def test_authenticate(sbd: RelayProcess, method: str, path: str, size: int, status: int) -> None:
    assert request(sbd.port, method, path, bytes(size))[0] == status


async def test_tokens_hold_on_every_worker_and_while_they_are_used(
    start_relay: StartRelay,
) -> None:
    with hook_server() as hook:
        settings = {**SETTINGS, "sbd.hook_url": hook.url, "sbd.idle_ms": "1500"}
        relay = start_relay(processes=2, settings=settings)
        status, body = request(relay.port, "PUT", "/authenticate", b"material")
        assert (status, hook.bodies) == (200, [b"material"])
        headers = {"Authorization": f"Bearer {json.loads(body)['authToken']}"}

        def authorized(**more: str) -> RawClient:
            url = f"ws://127.0.0.1:{relay.port}"
            return RawClient(url, fresh(), additional_headers={**headers, **more})

        for _ in range(8):
            async with authorized():
                pass
        async with authorized() as one:
            for _ in range(8):  # twice the life of an unused token
                await one.forward(one.key, b"")
                await one.receive()
                await asyncio.sleep(0.4)
            async with authorized():
                pass
        for refused in (client(relay), authorized(Authorization="Bearer wrong")):
            with pytest.raises(InvalidStatus) as error:
                async with refused:
                    pass
            assert error.value.response.status_code == 401
            assert error.value.response.body == b"Unauthorized"
        assert relay.redis is not None
        with relay.redis.client() as redis:
            await eventually(lambda: not redis.keys("sbd:token:*"))

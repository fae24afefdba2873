"""Bans and limits of SBD take effect on every worker within a second."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from proto.sbd import frames
from tests.e2e.conftest import _shared
from tests.e2e.test_sbd import client, fresh
from tests.proto.sbd.pairs import Identity
from tests.support.raw_http import read_answer, tcp
from tests.support.relay_process import RelayProcess, free_port, run_command
from tests.support.sbd_client import RawClient
from tests.support.waiting import eventually

LIVE_WITHIN_S = 1.5  # a second, and the noise of a busy machine
ATTACKER = "127.0.0.77"
OWN_PORT = free_port()
"""Port of the listener that serves only SBD."""


@pytest.fixture(scope="module")
def sbd(tmp_path_factory: pytest.TempPathFactory, data_template: Path) -> Iterator[RelayProcess]:
    """Start two workers with a limit of 8,000 kbit/s: a byte takes 1,000 ns."""
    settings = {
        "sbd.enabled": "true",
        "sbd.limit_kbit_per_s": "8000",
        "sbd.idle_ms": "60000",
        "sbd.listen": f"127.0.0.1:{OWN_PORT}",
    }
    yield from _shared(tmp_path_factory, data_template, processes=2, settings=settings)


async def decide(relay: RelayProcess, *arguments: str) -> None:
    done = await asyncio.to_thread(run_command, relay.folder, *arguments, settings=relay.settings)
    assert done.returncode == 0, done.stderr


async def counted(relay: RelayProcess, expected: int, name: str, **labels: str) -> None:
    """Wait until all workers together have counted so many; heartbeats report it."""
    await eventually(lambda: relay.counted(name, **labels) == expected)


async def refused(sbd: RelayProcess, raw: RawClient) -> tuple[int, bytes]:
    """Return the status and body with which a handshake is refused."""
    with pytest.raises(InvalidStatus) as error:
        async with raw.opened():
            pass
    return error.value.response.status_code, error.value.response.body


async def asked(port: int, method: str, path: str) -> tuple[int, bytes]:
    """Return the status and body that answer a request from the attacker."""
    async with tcp(port, ATTACKER) as (reader, writer):
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"
        writer.write(head.encode())
        answer = await read_answer(reader)
        return answer.status, answer.body


async def test_a_banned_key_is_dropped_and_refused_on_all_workers(sbd: RelayProcess) -> None:
    async with client(sbd) as one, client(sbd) as two, client(sbd) as bystander:
        for banned in (one, two):
            name = frames.path_of_key(banned.key)
            await decide(sbd, "rmb_ban", "set", f"--key={name}", "--reason", "testing")
            start = time.monotonic()
            assert await banned.ended() is None
            assert time.monotonic() - start < LIVE_WITHIN_S
            for _ in range(6):  # whichever worker answers
                assert await refused(sbd, client(sbd, banned.identity)) == (403, b"banned")
        await counted(sbd, 2, "sbd_ended_banned_total")
        await counted(sbd, 12, "sbd_auth_failures_banned_total")
        await bystander.forward(bystander.key, b"still here")
        assert (await bystander.receive()).payload == b"still here"
        await decide(sbd, "rmb_ban", "lift", f"--key={frames.path_of_key(one.key)}")

        async def served() -> bool:
            with contextlib.suppress(InvalidStatus):
                for _ in range(4):
                    async with client(sbd, one.identity):
                        pass
                return True
            return False

        await eventually(served, timeout_s=LIVE_WITHIN_S)


async def test_a_banned_address_is_dropped_and_refused_everywhere(sbd: RelayProcess) -> None:
    def attacker(port: int = sbd.port) -> RawClient:
        return RawClient(f"ws://127.0.0.1:{port}", fresh(), local_addr=(ATTACKER, 0))

    async with contextlib.AsyncExitStack() as stack, client(sbd) as bystander:
        held = [await stack.enter_async_context(attacker()) for _ in range(6)]
        unsigned = await stack.enter_async_context(attacker(OWN_PORT).opened())
        await unsigned.challenge()
        await decide(sbd, "rmb_ban", "set", "127.0.0.64/27", "--force")
        start = time.monotonic()
        for each in (*held, unsigned):
            assert await each.ended() is None
        assert time.monotonic() - start < LIVE_WITHIN_S
        for _ in range(6):
            assert await refused(sbd, attacker()) == (403, b"address_banned")
            assert await refused(sbd, attacker(OWN_PORT)) == (403, b"address_banned")
            for port, method, path in (
                (sbd.port, "PUT", "/authenticate"),
                (OWN_PORT, "PUT", "/authenticate"),
                (OWN_PORT, "GET", "/"),
            ):
                assert await asked(port, method, path) == (403, b"address_banned")
        await counted(sbd, 7, "sbd_ended_address_banned_total")
        await counted(sbd, 6 * 5, "relay_handshakes_refused_total", reason="address_banned")
        await bystander.forward(bystander.key, b"still here")
        assert (await bystander.receive()).payload == b"still here"
        await decide(sbd, "rmb_ban", "lift", "127.0.0.64/27")


async def told(raw: RawClient, byte_nanos: int) -> None:
    """Wait until a client was notified of a limit."""
    async with asyncio.timeout(LIVE_WITHIN_S + 3):
        while raw.limits[-1] != byte_nanos:
            await raw.receive_frame()


async def flood(raw: RawClient, size_bytes: int) -> bool:
    """Send so many bytes; return whether the connection survives."""
    with contextlib.suppress(ConnectionClosed):
        for _ in range(size_bytes // 16_384):
            await raw.send(frames.KEEP_ALIVE.ljust(16_384, b"\0"))
        await raw.forward(raw.key, b"survived")
        assert (await raw.receive()).payload == b"survived"
        return True
    return False


async def test_a_key_has_a_limit_of_its_own_while_it_is_connected(sbd: RelayProcess) -> None:
    one, two = fresh(), fresh()
    name = frames.path_of_key(one.key)

    def from_elsewhere(identity: Identity) -> RawClient:
        url = f"ws://127.0.0.1:{sbd.port}"
        return RawClient(url, identity, local_addr=("127.0.0.88", 0))

    async with from_elsewhere(one) as limited, from_elsewhere(two) as other:
        await told(other, 2_000)
        await decide(sbd, "rmb_limit", "sbd", f"--key={name}", "800")
        await told(limited, 10_000)
        await told(other, 1_000)  # has the address's whole limit
        async with client(sbd, one) as again:  # at either worker, from any address
            await told(again, 10_000)
            await decide(sbd, "rmb_limit", "sbd", f"--key={name}", "0")
            await told(again, 1)
            assert await flood(again, 1 << 20), "beyond the burst of its address"
            await decide(sbd, "rmb_limit", "sbd", f"--key={name}", "8")
            await told(again, 1_000_000)
            assert not await flood(again, 1 << 20)
        assert await flood(other, 100_000), "its address has not paid for the key"


async def test_a_network_has_a_limit_of_its_own(sbd: RelayProcess) -> None:
    raw = RawClient(f"ws://127.0.0.1:{sbd.port}", fresh(), local_addr=("127.0.9.9", 0))
    async with raw as near, client(sbd) as far:
        assert near.limits[-1] == 1_000
        await decide(sbd, "rmb_limit", "sbd", "--network", "127.0.9.0/24", "80")
        await told(near, 100_000)
        await decide(sbd, "rmb_limit", "sbd", "--network", "127.0.9.0/24", "--clear")
        await told(near, 1_000)
        assert far.limits[-1] <= 8_000

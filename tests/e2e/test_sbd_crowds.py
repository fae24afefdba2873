"""Clients that do not read, and very many idle ones, beside pairs that lose nothing.

The bench measures the full numbers (`sbd-idle`, `sbd-slow`); these tests use fewer, for seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from websockets.exceptions import ConnectionClosed

from proto.sbd import frames
from tests.e2e.conftest import _shared
from tests.proto.sbd.pairs import Identity
from tests.support.relay_process import RelayProcess
from tests.support.sbd_client import RawClient
from tests.support.sbd_crowd import crowd
from tests.support.waiting import eventually

NUMBERS = itertools.count(40_000)
IDLE_KEYS = 2_000
HALF_OPEN = 1_000
OF_ONE_ADDRESS = 1_000
PAIRS = 5
PACKETS = 100
KIB = 1024


@pytest.fixture(scope="module")
def sbd(tmp_path_factory: pytest.TempPathFactory, data_template: Path) -> Iterator[RelayProcess]:
    settings = {
        "sbd.enabled": "true",
        "sbd.limit_kbit_per_s": "80000",
        "sbd.limit_burst_bytes": "4000000",
        "sbd.receiver_bytes": str(KIB * KIB),
        "sbd.idle_ms": "30000",
    }
    yield from _shared(tmp_path_factory, data_template, processes=2, settings=settings)


def client(relay: RelayProcess, address: str = "127.0.0.1") -> RawClient:
    url = f"ws://127.0.0.1:{relay.port}"
    return RawClient(url, Identity(next(NUMBERS)), local_addr=(address, 0))


async def talk(one: RawClient, two: RawClient, count: int = PACKETS) -> None:
    """Check that every packet arrives, in order."""
    for number in range(count):
        await one.forward(two.key, b"%d" % number)
        assert await two.receive() == frames.Forward(one.key, b"%d" % number)


@contextlib.asynccontextmanager
async def small_reader(relay: RelayProcess) -> object:
    """Open a client whose kernel buffers little of what the client does not read."""
    end = socket.socket()
    end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * KIB)
    end.setblocking(False)
    await asyncio.get_running_loop().sock_connect(end, ("127.0.0.1", relay.port))
    identity = Identity(next(NUMBERS))
    async with RawClient(f"ws://127.0.0.1:{relay.port}", identity, sock=end) as reader:
        yield reader


async def test_a_slow_reader_is_dropped_and_others_lose_nothing(sbd: RelayProcess) -> None:
    """A slow reader is dropped, and others lose nothing, not even those that send to it as well."""
    before = sbd.counted("sbd_ended_slow_reader_total")
    async with contextlib.AsyncExitStack() as stack:
        slow = await stack.enter_async_context(small_reader(sbd))
        found = [
            await stack.enter_async_context(client(sbd, f"127.0.9.{1 + number % PAIRS}"))
            for number in range(2 * PAIRS)
        ]
        senders, targets = found[:PAIRS], found[PAIRS:]

        async def send(one: RawClient, two: RawClient) -> None:
            for number in range(150):
                await one.forward(slow.key, bytes(16 * KIB))
                await talk(one, two, 1)
                if number % 10 == 0:
                    await asyncio.sleep(0)

        async with asyncio.timeout(60):
            await asyncio.gather(*map(send, senders, targets))
            await eventually(
                lambda: sbd.counted("sbd_ended_slow_reader_total") == before + 1, timeout_s=20
            )
        with pytest.raises(ConnectionClosed):
            while True:
                await slow.receive_frame()
    assert sbd.counted("sbd_lost_slow_reader_total") > 0


async def test_idle_keys_and_half_open_handshakes(sbd: RelayProcess) -> None:
    """A pair works beside idle keys and half-open handshakes, of which nothing remains."""
    assert sbd.redis is not None
    memory = [psutil.Process(pid) for pid in sbd.worker_pids().values()]
    async with client(sbd) as one, client(sbd) as two:
        used = sum(each.memory_info().rss for each in memory)
        idle_keys = range(50_000, 50_000 + IDLE_KEYS)
        half_open = range(60_000, 60_000 + HALF_OPEN)
        async with (
            crowd(sbd.port, idle_keys, addresses=200) as idle,
            crowd(sbd.port, half_open, signs=False, addresses=200) as half,
        ):
            assert all(each.ready for each in idle)
            assert not any(each.ended or each.ready for each in half)
            await talk(one, two)
            assert sbd.redis.run("HLEN", "sbd:keys") == IDLE_KEYS + 2
            await eventually(
                lambda: sbd.counted("sbd_connections") == IDLE_KEYS + HALF_OPEN + 2, timeout_s=20
            )
            each_bytes = (sum(one.memory_info().rss for one in memory) - used) / len(idle + half)
            assert each_bytes < 32 * KIB
            assert not any(each.ended for each in idle + half)
            await one.forward(idle[0].identity.key, b"to an idle one")
        await talk(one, two)
        await eventually(lambda: sbd.redis.run("HLEN", "sbd:keys") == 2)  # type: ignore[union-attr]
        await eventually(lambda: sbd.counted("sbd_connections") == 2)


async def test_very_many_of_one_address(sbd: RelayProcess) -> None:
    """Clients of one address share its limit, and are notified of it in rounds.

    Not each client is notified when each other one connects.
    """
    async with client(sbd) as one, client(sbd) as two:
        async with crowd(sbd.port, range(70_000, 70_000 + OF_ONE_ADDRESS)) as many:
            assert all(each.ready for each in many)
            await talk(one, two)
            async with client(sbd, "127.0.8.1") as last:
                while last.limits[-1] != 100 * (OF_ONE_ADDRESS + 1):
                    await last.receive_frame()
            told = sum(each.limits for each in many)
            assert told < 100 * OF_ONE_ADDRESS
        async with client(sbd, "127.0.8.1") as last:
            while last.limits[-1] != 100:
                await last.receive_frame()
        await talk(one, two)

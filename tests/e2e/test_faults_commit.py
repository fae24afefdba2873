"""The commit connection cut at any byte of a batch and of its reply, through a proxy.

Whatever part of a batch or of its answer got through, the message is delivered exactly once: the
relay asks Redis how far the last batch got. A normal run takes a sample of the byte positions;
`RMB_TEST_EVERY_BYTE=1` takes all of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest
import pytest_asyncio

from tests.support.redis_servers import start_valkey
from tests.support.relay_process import RelayProcess
from tests.support.rmb_client import RmbClient, session
from tests.support.tcp_proxy import Direction, Flow, ProxiedConnection, TcpProxy, tcp_proxy
from tests.support.world import fresh_twins

# One loop for all tests, because they share one proxy.
pytestmark = pytest.mark.asyncio(loop_scope="module")

SAMPLE = 12  # byte positions in a normal run
MARK = b"cut here"


class Cutter:
    """Cuts the connection that carries the marked message, at a given byte.

    Attributes:
        batch_bytes: size of the chunk with the marked message, once it was seen.
        reply_bytes: size of the chunk that answered it.
        cuts: number of connections cut.
    """

    def __init__(self, proxy: TcpProxy) -> None:
        self.proxy = proxy
        self.direction = Direction.TO_SERVER
        self.at = -1
        self.mark = b""
        self.cuts = 0
        self.batch_bytes = 0
        self.reply_bytes = 0
        self._marked: ProxiedConnection | None = None
        proxy.interceptor = self.intercept

    def arm(self, direction: Direction, at: int, mark: bytes) -> None:
        """Cut the next chunk with `mark`, or its reply, after `at` bytes; -1 only measures."""
        self.direction, self.at, self.mark, self._marked = direction, at, mark, None

    def size(self, direction: Direction) -> int:
        """Return the size of the last batch, or of its reply, in bytes."""
        return self.batch_bytes if direction is Direction.TO_SERVER else self.reply_bytes

    def intercept(self, flow: Flow, data: bytes) -> int | None:
        if self.mark and flow.direction is Direction.TO_SERVER and self.mark in data:
            self.batch_bytes = len(data)
            if self.direction is Direction.TO_SERVER:
                return self._cut(len(data))
            self._marked, self.mark = flow.connection, b""
        elif flow.connection is self._marked and flow.direction is Direction.TO_CLIENT:
            self.reply_bytes = len(data)
            self._marked = None
            return self._cut(len(data))
        return None

    def _cut(self, size: int) -> int | None:
        self.mark = b""
        if not 0 <= self.at < size:
            return None
        self.cuts += 1
        return self.at


class Cuttable(NamedTuple):
    """A relay that reaches Redis only through a proxy, and another one of the same Redis."""

    proxy: TcpProxy
    relay: RelayProcess
    other: RelayProcess


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(
    tmp_path_factory: pytest.TempPathFactory, data_template: Path
) -> AsyncIterator[Cuttable]:
    """Start both relays for all tests; each test leaves them working."""
    folder = tmp_path_factory.mktemp("commit")
    server = start_valkey(folder / "redis", append_fsync="no")
    async with contextlib.AsyncExitStack() as cleanup:
        cleanup.callback(server.remove)
        proxy = await cleanup.enter_async_context(tcp_proxy(("127.0.0.1", server.port)))
        url = f"redis://127.0.0.1:{proxy.port}/0"
        relay = RelayProcess(folder / "relay", data_template, server, redis_url=url)
        other = RelayProcess(folder / "other", data_template, server)
        for each in (relay, other):
            # Stopped while the proxy still runs: without Redis, stopping takes until its time-out.
            cleanup.push_async_callback(asyncio.to_thread, each.stop)
            await asyncio.to_thread(each.start)
        yield Cuttable(proxy, relay, other)


@pytest.fixture
def cuttable(shared: Cuttable) -> Cuttable:
    """Return the relays, with a proxy that passes everything through."""
    shared.proxy.interceptor = None
    shared.proxy.refusing = False
    return shared


async def _exchange(sender: RmbClient, receiver: RmbClient, number: int) -> None:
    """Send one marked message; check that it and its neighbours arrive once each, in order."""
    expected = [b"%d before" % number, b"%d %b" % (number, MARK), b"%d after" % number]
    await sender.request(receiver.key, expected[0])
    await sender.barrier()
    await sender.request(receiver.key, expected[1])
    await sender.barrier()
    await sender.request(receiver.key, expected[2])
    await sender.barrier()
    got = [(await receiver.receive(15)).plain for _ in expected]
    assert got == expected
    assert receiver.inbox.empty()


@pytest.mark.parametrize("receiver_at", ["same worker", "other worker"])
@pytest.mark.parametrize("direction", list(Direction), ids=lambda each: each.value)
async def test_cut_at_the_bytes_of_a_batch(
    cuttable: Cuttable, direction: Direction, receiver_at: str
) -> None:
    proxy, relay, other = cuttable
    if receiver_at == "same worker":
        other = relay
    cutter = Cutter(proxy)
    one, two = fresh_twins(2)
    async with session(relay.url, one) as sender, session(other.url, two) as receiver:
        sizes = []
        for _ in range(3):  # other replies may share a chunk: the smallest is the batch's own
            cutter.arm(direction, -1, MARK)
            await _exchange(sender, receiver, 0)
            sizes.append(cutter.size(direction))
        size = min(sizes)
        step = 1 if os.environ.get("RMB_TEST_EVERY_BYTE") else max(1, size // SAMPLE)
        for number, at in enumerate(range(0, size, step), 1):
            before = cutter.cuts
            cutter.arm(direction, at, MARK)
            await _exchange(sender, receiver, number)
            # Batches differ in their other contents: this one may have been shorter.
            assert cutter.cuts == before + 1 or at >= cutter.size(direction)
        assert cutter.cuts > 2


async def test_two_cuts_in_a_row(cuttable: Cuttable) -> None:
    """A message is delivered once even if the query how far the batch got is cut off as well."""
    proxy, relay, _ = cuttable
    one, two = fresh_twins(2)
    async with session(relay.url, one) as sender, session(relay.url, two) as receiver:
        state = {"cuts": 0}

        def cut(flow: Flow, data: bytes) -> int | None:
            if flow.direction is Direction.TO_SERVER and (
                (MARK in data and state["cuts"] == 0)
                or (b"relay:commit:" in data and b"GET" in data and 0 < state["cuts"] < 3)
            ):
                state["cuts"] += 1
                return len(data) if state["cuts"] == 1 else len(data) // 2
            return None

        proxy.interceptor = cut
        await _exchange(sender, receiver, 1)
        assert state["cuts"] == 3


async def test_redis_unreachable_for_a_while(cuttable: Cuttable) -> None:
    """While all connections are reset and refused, senders wait; nothing is lost or duplicated."""
    proxy, relay, _ = cuttable
    one, two = fresh_twins(2)
    async with session(relay.url, one) as sender, session(relay.url, two) as receiver:
        await _exchange(sender, receiver, 0)
        proxy.refusing = True
        proxy.reset_all()
        sent = [b"%d" % number for number in range(200)]
        for payload in sent:
            await sender.request(receiver.key, payload)
        with pytest.raises(TimeoutError):
            await sender.barrier(1)
        await asyncio.wait_for(await receiver.websocket.ping(), 5)
        proxy.refusing = False
        assert [(await receiver.receive(5)).plain for _ in sent] == sent
        await sender.barrier()
        await _exchange(sender, receiver, 1)

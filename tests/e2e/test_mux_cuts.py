"""A connection of streams cut at any byte: nothing is lost, and few messages come twice."""

from __future__ import annotations

import asyncio
import contextlib
import random

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from peer.mux import ConnectionEndedError, StreamFailedError
from tests.support import rmb_client
from tests.support.relay_process import RelayProcess
from tests.support.rmb_client import RmbClient
from tests.support.stream_client import connection, sign_in
from tests.support.tcp_proxy import Direction, Flow, TcpProxy, tcp_proxy
from tests.support.world import fresh_twins

MESSAGES = 60
CUTS = 6
ENDED = (ConnectionEndedError, StreamFailedError, ConnectionClosed, InvalidStatus, ConnectionError)


def cut(proxy: TcpProxy, direction: Direction, at: int) -> None:
    """Make the proxy cut its connection after so many bytes in one direction."""

    def intercept(flow: Flow, data: bytes) -> int | None:
        if flow.direction is not direction or flow.passed_bytes + len(data) < at:
            return None
        return at - flow.passed_bytes

    proxy.interceptor = intercept


def numbers(client: RmbClient) -> list[int]:
    """Return the numbers of the messages that a client has received."""
    return [int(client.inbox.get_nowait()[1].plain) for _ in range(client.inbox.qsize())]


@pytest.mark.parametrize("direction", list(Direction))
async def test_a_cut_at_any_byte(relay: RelayProcess, direction: Direction) -> None:
    rng = random.Random(direction.value)
    one, other = fresh_twins(2)
    async with rmb_client.session(relay.url, other) as partner:
        for _ in range(CUTS):
            had: list[int] = []
            async with tcp_proxy(("127.0.0.1", relay.port)) as proxy:
                cut(proxy, direction, rng.randrange(1, 9_000))
                with contextlib.suppress(*ENDED):
                    async with connection(f"ws://127.0.0.1:{proxy.port}") as mux:
                        client = await sign_in(mux, one)
                        for number in range(MESSAGES):
                            await partner.request(client.key, b"%d" % number)
                            with contextlib.suppress(*ENDED):
                                await client.request(partner.key, b"%d" % number)
                        with contextlib.suppress(TimeoutError):
                            async with asyncio.timeout(0.5):
                                await client.closed()
                        had = numbers(client)
                        await client.abort()
            missing = set(range(MESSAGES)) - set(had)
            assert had == list(range(len(had)))
            async with rmb_client.session(relay.url, one) as again:
                await partner.request(again.key, b"%d" % MESSAGES)
                again_got: list[int] = []
                while MESSAGES not in again_got:
                    again_got.append(int((await again.receive()).plain))
                await again.barrier()
            if not had and len(again_got) == 1:
                continue  # the cut came before the sign-in: nothing was sent
            assert again_got == list(range(again_got[0], MESSAGES + 1))
            assert missing <= set(again_got)
            sent = numbers(partner)
            assert sent == list(range(len(sent))), "what arrives is in order, and comes once"

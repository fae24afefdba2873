"""Tests of `tests.support.kernel_client`: it accounts for all that its kernel acknowledged."""

from __future__ import annotations

import asyncio

import pytest
from websockets.asyncio.server import ServerConnection, serve

from relay.server.acknowledgement import Outgoing
from tests.support.kernel_client import KernelClient

MESSAGES = [b"%d" % number for number in range(50)]


@pytest.mark.parametrize("end", ["reset", "vanish", "write fails"])
async def test_what_was_acknowledged_was_taken(end: str) -> None:
    connections: asyncio.Queue[ServerConnection] = asyncio.Queue()

    async def handle(connection: ServerConnection) -> None:
        connections.put_nowait(connection)
        await connection.wait_closed()

    got: list[bytes] = []
    async with serve(handle, "127.0.0.1", 0, compression=None) as server:
        port = server.sockets[0].getsockname()[1]
        client = await KernelClient.connect(f"ws://127.0.0.1:{port}", "token", got.append)
        peer = await connections.get()
        client.stop_reading()
        for message in MESSAGES:
            await peer.send(message)
        outgoing = Outgoing(peer.transport, asyncio.get_running_loop())
        written = 50 * 2 + sum(map(len, MESSAGES))
        while outgoing.acknowledged(written) < written:
            await asyncio.sleep(0)
        assert got == []
        if end == "write fails":
            peer.transport.abort()
            while not client.over.is_set():
                client.send(b"x")
                await asyncio.sleep(0)
        else:
            getattr(client, end)()
        assert got == MESSAGES
        assert not client.alive
        if end == "vanish":
            await peer.send(b"never acknowledged")
            assert outgoing.acknowledged(written + 20) == written
            client.discard()
        await peer.wait_closed()

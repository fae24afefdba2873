"""Tests of stream servers: nothing of them is left when they end."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import weakref

import pytest

from tests.support.stream_server import stream_server


@pytest.mark.parametrize("turns", range(6))
async def test_no_connection_is_left(turns: int) -> None:
    """No connection is left in any state: only connected, accepted, or passed to its handler."""
    accepted: weakref.WeakSet[asyncio.BaseTransport] = weakref.WeakSet()

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.add(writer.transport)
        await reader.read()

    before = asyncio.all_tasks()
    async with stream_server(handler) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        for _ in range(turns):
            await asyncio.sleep(0)
    with contextlib.suppress(ConnectionResetError):
        assert await asyncio.wait_for(reader.read(), 10) == b""
    writer.close()
    assert asyncio.all_tasks() == before
    assert all(each.is_closing() for each in accepted)
    gc.collect()  # a warning about an open one, which is an error, would appear here

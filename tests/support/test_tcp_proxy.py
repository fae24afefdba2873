"""Tests of the proxy: it passes bytes untouched until it is told to misbehave."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.support.stream_server import stream_server
from tests.support.tcp_proxy import Direction, Flow, TcpProxy, tcp_proxy

TIMEOUT_S = 5.0


@pytest.fixture
async def echo_proxy() -> AsyncIterator[TcpProxy]:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass

    async with (
        stream_server(echo) as server,
        tcp_proxy(("127.0.0.1", server.port), receive_buffer_bytes=8192) as proxy,
    ):
        yield proxy


async def _connect(proxy: TcpProxy) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", proxy.port)


async def test_passes_bytes_and_the_end(echo_proxy: TcpProxy) -> None:
    reader, writer = await _connect(echo_proxy)
    sent = bytes(range(256)) * 4096
    writer.write(sent)
    writer.write_eof()
    assert await asyncio.wait_for(reader.read(-1), TIMEOUT_S) == sent
    writer.close()


async def test_stalls_one_direction_and_tells_what_had_arrived(echo_proxy: TcpProxy) -> None:
    reader, writer = await _connect(echo_proxy)
    writer.write(b"before")
    assert await asyncio.wait_for(reader.readexactly(6), TIMEOUT_S) == b"before"
    echo_proxy.stall(Direction.TO_CLIENT)
    writer.write(b"stuck")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(reader.read(1), 0.1)
    echo_proxy.resume(Direction.TO_CLIENT)
    assert await asyncio.wait_for(reader.readexactly(5), TIMEOUT_S) == b"stuck"
    echo_proxy.stall(Direction.TO_CLIENT)
    writer.write(b"lost")
    (connection,) = echo_proxy.connections
    async with asyncio.timeout(TIMEOUT_S):
        while connection.arrived(Direction.TO_CLIENT) != b"lost":
            await asyncio.sleep(0.001)
    echo_proxy.reset_all()
    with pytest.raises(ConnectionResetError):
        await asyncio.wait_for(reader.read(1), TIMEOUT_S)
    writer.close()


async def test_cuts_after_a_number_of_bytes(echo_proxy: TcpProxy) -> None:
    def cut(flow: Flow, data: bytes) -> int | None:
        return 3 if flow.direction is Direction.TO_CLIENT else None

    echo_proxy.interceptor = cut
    reader, writer = await _connect(echo_proxy)
    writer.write(b"abcdef")
    assert await asyncio.wait_for(reader.read(-1), TIMEOUT_S) == b"abc"
    writer.close()


async def test_refuses(echo_proxy: TcpProxy) -> None:
    echo_proxy.refusing = True
    reader, writer = await _connect(echo_proxy)
    with pytest.raises(ConnectionResetError):
        await asyncio.wait_for(reader.read(1), TIMEOUT_S)
    writer.close()

"""Server and client that do the same with gRPC: `python -m tests.bench.streams.grpc_pair [serve]`.

Streams carry bytes, calls JSON, both without protobuf.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from typing import Any

import grpc
import uvloop

from tests.bench import load
from tests.bench.streams.program import CHUNK_BYTES, MESSAGE_BYTES, PARAMS, Program

CHUNK = bytes(CHUNK_BYTES)
MESSAGE = bytes(MESSAGE_BYTES)


def written(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


async def echo(messages: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
    async for message in messages:
        yield message


async def echo_call(params: Any, context: Any) -> Any:
    return params


async def serve() -> None:
    """Serve until stdin ends; print the port."""
    server = grpc.aio.server()
    methods = {
        "echo": grpc.stream_stream_rpc_method_handler(echo),
        "call": grpc.unary_unary_rpc_method_handler(echo_call, json.loads, written),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bench", methods),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    async for _ in load.commands():
        pass
    await server.stop(None)


class Grpc(Program):
    """Client of gRPC."""

    async def open(self, port: int, certificate: str | None) -> None:
        """Connect."""
        self._channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}")
        await self._channel.channel_ready()
        self._echo = self._channel.stream_stream("/bench/echo")
        self._call = self._channel.unary_unary("/bench/call", written, json.loads)
        self._idle: list[Any] = []

    async def close(self) -> None:
        """End the connection."""
        await self._channel.close()

    async def idle(self, streams: int) -> int:
        """Open streams that stay idle; return how many are open."""
        for _ in range(streams):
            stream = self._echo()
            await stream.write(MESSAGE)
            await stream.read()
            self._idle.append(stream)
        return len(self._idle)

    async def chunks(self) -> None:
        stream = self._echo()
        feeding = asyncio.create_task(self._feed(stream))
        while (data := await stream.read()) is not grpc.aio.EOF:
            self.count += len(data)
        await feeding

    async def _feed(self, stream: Any) -> None:
        while self.is_running:
            await stream.write(CHUNK)
        await stream.done_writing()

    async def messages(self) -> None:
        stream = self._echo()
        while self.is_running:
            await stream.write(MESSAGE)
            if len(await stream.read()) != MESSAGE_BYTES:
                raise ValueError("another message")
            self.count += 1
        await stream.done_writing()
        await stream.read()

    async def calls(self) -> None:
        while self.is_running:
            if await self._call(PARAMS) != PARAMS:
                raise ValueError("another answer")
            self.count += 1


if __name__ == "__main__":
    uvloop.run(serve() if sys.argv[1:] == ["serve"] else load.serve(Grpc()))

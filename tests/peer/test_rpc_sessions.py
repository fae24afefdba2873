"""Calls between two sessions in one process: what they leave behind, and what ends them early."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from peer.mux import MuxSession, MuxStream
from peer.mux.session import Handler
from peer.rpc import RpcPeer, RpcRemoteError, RpcTimeoutError, Service
from proto.rpc.errors import ErrorCode

pytestmark = pytest.mark.asyncio
TIMEOUT_S = 60.0


class Line:
    """Stands in for a websocket to the other session."""

    is_full = False

    def __init__(self) -> None:
        self.session: MuxSession
        self.other: Line

    def send(self, messages: list[bytes]) -> None:
        asyncio.get_running_loop().call_soon(self.other.session.messages_received, messages)

    def ping(self) -> None:
        raise AssertionError("no pings are due")

    def close(self, code: int, text: str) -> None:
        for line in (self, self.other):
            line.session.wire_ended(f"{code} {text}")


@asynccontextmanager
async def connected(handler: Handler) -> AsyncIterator[tuple[MuxSession, MuxSession]]:
    one, other = Line(), Line()
    one.other, other.other = other, one
    one.session, other.session = MuxSession(True, one), MuxSession(False, other, handler)
    async with asyncio.timeout(TIMEOUT_S):
        yield one.session, other.session
        await one.session.close()
        await other.session.close()


async def settled(*sessions: MuxSession) -> None:
    while any(len(session.mux) for session in sessions):
        await asyncio.sleep(0)


async def test_calls_leave_nothing_behind() -> None:
    service = Service()

    @service.handler("echo")
    async def echo(params: dict[str, Any]) -> dict[str, Any]:
        return params

    async with connected(service.serve) as sessions:
        peer = RpcPeer(sessions[0])

        async def objects_after(calls: int) -> int:
            for number in range(calls):
                params = {"number": number}
                assert await peer.call("echo", params, timeout_s=9) == params
            await settled(*sessions)
            gc.collect()
            return len(gc.get_objects())

        first = await objects_after(100)
        assert await objects_after(700) < first + 600


@pytest.mark.parametrize("is_given_up", [True, False])
async def test_work_ends_when_its_caller_gives_up_or_time_is_over(is_given_up: bool) -> None:
    service = Service()
    began, ended = asyncio.Event(), asyncio.Event()

    @service.handler("rest", timeout_s=None if is_given_up else 0.05)
    async def rest(params: dict[str, Any]) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with connected(service.serve) as sessions:
        call = asyncio.create_task(RpcPeer(sessions[0]).call("rest"))
        await began.wait()
        if is_given_up:
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
        else:
            with pytest.raises(RpcRemoteError) as failed:
                await call
            assert failed.value.code == ErrorCode.TIMED_OUT
        await ended.wait()
        await settled(*sessions)


async def test_a_caller_waits_no_longer_than_it_says() -> None:
    service = Service()
    ended = asyncio.Event()

    @service.handler("rest")
    async def rest(params: dict[str, Any]) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with connected(service.serve) as sessions:
        with pytest.raises((RpcTimeoutError, RpcRemoteError)):
            await RpcPeer(sessions[0]).call("rest", timeout_s=0.05)
        await ended.wait()
        await settled(*sessions)


async def test_one_task_reads_a_stream() -> None:
    async def wait_for_data(stream: MuxStream) -> None:
        await stream.read()

    async with connected(wait_for_data) as sessions, sessions[0].open() as stream:
        reading = asyncio.create_task(stream.read())
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="being read by another task"):
            await stream.read()
        await stream.end()
        assert await reading == b""

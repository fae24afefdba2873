"""Fuzz a server of calls: the bytes of a client's websocket, up to the handlers.

Handlers are given only calls, no handler fails because of its input, and no state is left when the
connection has ended.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections.abc import AsyncIterator, Callable
from typing import Any

from peer.mux.session import MuxSession
from peer.rpc import Service
from peer.rpc.service import RawCall
from proto.mux import frames, varint
from proto.mux.bounds import MAX_HEADER_BYTES, MuxBounds
from proto.mux.frames import Half
from proto.websocket.events import InputRefused
from proto.websocket.frames import FrameReader, masked_frame
from tests.fuzz.damage import damaged

BOUNDS = MuxBounds(stream_bytes=256, piece_bytes=50, max_streams=3)
IDS = [0, 0, 2, 2, 4, 6, 1, 64]
METHODS = ["unary", "results", "gather", "duplex", "raw", "none"]
service = Service()

Params = dict[str, Any]


def targets() -> list[tuple[str, Callable[[random.Random], None]]]:
    """Return the name and the function of the target."""
    return [("streams: a server of calls", _client)]


@service.handler("unary")
async def unary(params: Params) -> Params:
    return params


@service.handler("results")
async def results(params: Params) -> AsyncIterator[Params]:
    for _ in range(20):
        yield params


@service.handler("gather", takes_stream=True)
async def gather(messages: AsyncIterator[Params]) -> list[Params]:
    return [each async for each in messages]


@service.handler("duplex", takes_stream=True)
async def duplex(messages: AsyncIterator[Params]) -> AsyncIterator[Params]:
    async for each in messages:
        yield each


@service.raw("raw")
async def raw(params: Params, call: RawCall) -> None:
    await call.answer(params)
    async for data in call:
        await call.write(data)


class _Wire:
    """A websocket whose client reads everything."""

    is_full = False

    def __init__(self) -> None:
        self.code: int | None = None

    def send(self, messages: list[bytes]) -> None:
        for message in messages:
            frames.parse_frame(message, frames.parse_id(message)[1])

    def ping(self) -> None:
        raise AssertionError("no pings are wanted")

    def close(self, code: int, text: str) -> None:
        assert self.code is None
        self.code = code


class _Log(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


def _request(rng: random.Random) -> bytes:
    params: Any = rng.choice([{}, {"a": "é\ud800"}, {"a": [1.5, None]}, [], None, {"metadata": 1}])
    value = {"method": rng.choice(METHODS), "params": params}
    if rng.random() < 0.2:
        value["params"] = {"metadata": {"timeout": rng.choice([0, -1, 1000, "x"])}}
    good = json.dumps(value).encode() * rng.choice([1, 1, 1, 3])
    return damaged(rng, good, times=rng.choice([0, 0, 0, 1]), longest_cut_bytes=9)


def _frame(rng: random.Random) -> bytes:
    prefix = varint.encode(rng.choice(IDS))
    match rng.randrange(8):
        case 0 | 1 | 2:
            return prefix + frames.ACK + rng.choice([0, 3, 1000, 2**32 - 1]).to_bytes(4, "big")
        case 3 | 4 | 5:
            return frames.data(prefix, _request(rng)[: rng.choice([10, 1000])])
        case 6:
            return frames.close(prefix, rng.choice(list(Half)))
        case _:
            return frames.error(prefix, rng.choice(list(Half)), rng.choice([0, 70]))


def _client(rng: random.Random) -> None:
    made = [masked_frame(_frame(rng), rng.randbytes(4)) for _ in range(rng.randrange(40))]
    data = damaged(rng, b"".join(made), times=rng.choice([0, 0, 0, 1]), longest_cut_bytes=9)
    logger, log = logging.getLogger("peer"), _Log()
    propagate, logger.propagate = logger.propagate, False
    logger.addHandler(log)
    try:
        asyncio.run(_served(rng, data))
    finally:
        logger.removeHandler(log)
        logger.propagate = propagate
    assert not log.lines, log.lines


async def _served(rng: random.Random, data: bytes) -> None:
    wire = _Wire()
    session = MuxSession(False, wire, service.serve, BOUNDS)
    reader = FrameReader(BOUNDS.stream_bytes + MAX_HEADER_BYTES)
    while data and wire.code is None and not _is_refused(reader):
        size = rng.choice([1, 20, 1000])
        for message in reader.receive_data(data[:size]):
            session.message_received(message)
        data = data[size:]
        for _ in range(rng.choice([0, 1, 5])):
            await asyncio.sleep(0)
        assert all(0 <= stream.held_bytes <= BOUNDS.stream_bytes for stream in session.mux)
    assert wire.code in (None, 1002)
    for _ in range(rng.choice([1, 20])):  # let handlers begin
        await asyncio.sleep(0)
    session.wire_ended("the client has gone")
    async with asyncio.timeout(5):
        await session.close()
    assert len(session.mux) == 0
    assert asyncio.all_tasks() == {asyncio.current_task()}


def _is_refused(reader: FrameReader) -> bool:
    return any(isinstance(event, InputRefused) for event in reader.events)

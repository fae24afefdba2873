"""Fuzz streams and calls: any frames at streams in every state, any JSON as messages of calls.

A connection continues or ends with a documented close code, holds no more than it granted, and a
call ends with one event.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable

from proto.mux import frames, varint
from proto.mux.bounds import MuxBounds
from proto.mux.connection import MuxConnection
from proto.mux.errors import MuxError
from proto.mux.events import CloseDue
from proto.mux.frames import Half
from proto.rpc.call import Kind
from proto.rpc.caller import CallEnded, Caller, CallFailed
from proto.rpc.handler import Called, Handler
from proto.rpc.messages import error_response, request, response
from tests.fuzz.damage import damaged

MS = 1_000_000
WINDOW = 32
_IDS = [0, 1, 2, 3, 4, 5, 62, 63, 64, 16384, (1 << 62) - 2, (1 << 62) - 1]
_CODES = [0, 1, 63, 64, (1 << 62) - 1]


def targets() -> list[tuple[str, Callable[[random.Random], None]]]:
    """Return the name and the function of each target."""
    return [
        ("streams: frames", _frames),
        ("calls: a caller's messages", _handler_input),
        ("calls: a handler's messages", _caller_input),
    ]


def _frame(rng: random.Random) -> bytes:
    prefix = varint.encode(rng.choice(_IDS))
    match rng.randrange(6):
        case 0 | 1:
            frame = prefix + frames.ACK + rng.choice([0, 1, 7, 2**32 - 1]).to_bytes(4, "big")
        case 2:
            frame = frames.data(prefix, rng.randbytes(rng.choice([0, 1, 7, WINDOW, WINDOW + 1])))
        case 3:
            frame = frames.error(prefix, rng.choice(list(Half)), rng.choice(_CODES))
        case 4:
            frame = frames.close(prefix, rng.choice(list(Half)))
        case _:
            frame = rng.randbytes(rng.randrange(14))
    return damaged(rng, frame, times=1, longest_cut_bytes=3) if rng.random() < 0.05 else frame


def _frames(rng: random.Random) -> None:
    now = 0
    bounds = MuxBounds(stream_bytes=WINDOW, piece_bytes=5, max_streams=3)
    mux = MuxConnection(rng.random() < 0.5, now, bounds)
    known: list[int] = []
    for _ in range(rng.randrange(60)):
        now += rng.choice([0, 0, 0, MS, 300 * MS])
        match rng.randrange(8):
            case 0 if len(known) < 4 and not mux.is_closed:
                known.append(mux.open_stream(now))
            case 1:
                _act(rng, mux, rng.choice([*known, *_IDS]), now)
            case 2:
                assert all(type(each) is bytes for each in mux.data_to_send(now, 20))
            case 3:
                mux.handle_timer(now)
            case _:
                mux.receive_data(_frame(rng), now)
        assert all(0 <= stream.held_bytes <= WINDOW for stream in mux)
        while (event := mux.next_event()) is not None:
            if isinstance(event, CloseDue):
                assert event.code == 1002
                assert event.violation is not None
                assert mux.is_closed


def _act(rng: random.Random, mux: MuxConnection, stream_id: int, now: int) -> None:
    try:
        match rng.randrange(5):
            case 0:
                mux.write(stream_id, rng.randbytes(rng.randrange(50)))
            case 1:
                mux.read(stream_id, rng.randint(1, 50))
            case 2:
                mux.end(stream_id, now)
            case 3:
                mux.abort(stream_id, rng.choice(_CODES))
            case _:
                mux.cancel(stream_id, rng.choice(_CODES))
    except MuxError as error:
        assert str(error)


def _split(rng: random.Random, data: bytes) -> list[bytes]:
    parts = []
    while data:
        size = rng.randint(1, len(data))
        parts.append(data[:size])
        data = data[size:]
    return parts


def _scrap(rng: random.Random) -> bytes:
    return rng.choice([b"", b" ", b"[", b'{"a":' * 70, b"\xff", b"{}", b'{"method":1}', b"null"])


def _handler_input(rng: random.Random) -> None:
    good = [
        request("m", {"a": number}, {"timeout": rng.choice([1, None, -1, "x"])})
        for number in (1, 2)
    ]
    data = damaged(rng, b"".join(good) + _scrap(rng), times=rng.randrange(3), longest_cut_bytes=8)
    handler = Handler(0)
    calls = 0
    for part in _split(rng, data):
        handler.receive_data(part)
        while (event := handler.next_event()) is not None:
            if isinstance(event, Called):
                calls += 1
                handler.accept(rng.choice(list(Kind)))
        while handler.next_action() is not None:
            handler.acknowledged()
    handler.receive_end()
    assert calls <= 1
    assert calls or handler.is_over


def _caller_input(rng: random.Random) -> None:
    results = [response(rng.choice([1, None, {"a": "é"}, [1]])) for _ in range(rng.randrange(3))]
    failed = {"code": -1, "message": "m", "data": json.loads(rng.choice(["1", "{}", "[]", "null"]))}
    data = b"".join(results) + (error_response(failed) if rng.random() < 0.5 else b"") + _scrap(rng)
    data = damaged(rng, data, times=rng.randrange(3), longest_cut_bytes=8)
    caller = Caller(rng.choice(list(Kind)), "m", 0)
    caller.send({})
    for part in _split(rng, data):
        caller.receive_data(part)
    caller.receive_end()
    ends = 0
    while (event := caller.next_event()) is not None:
        ends += isinstance(event, CallEnded | CallFailed)
    assert ends == 1
    assert caller.is_over

"""Fuzz sessions on streams: any frames at the relay's side, while sessions do anything.

Positions never decrease and stay within what was written, each session ends once, and nothing is
left when the connection has ended.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from proto.mux import frames, varint
from proto.mux.frames import Half
from proto.mux.messages import framed
from tests.fuzz.damage import damaged
from tests.relay.mux.sides import STREAM_BYTES, Pair, Session

_IDS = [0, 2, 4, 6, 64, 1, 16384]
_SIZES = [0, 1, 63, 64, 500, STREAM_BYTES]


def targets() -> list[tuple[str, Callable[[random.Random], None]]]:
    """Return the name and the function of each target."""
    return [("streams: sessions", lambda rng: asyncio.run(_sessions(rng)))]


async def _sessions(rng: random.Random) -> None:
    pair = Pair(max_streams=3)
    pair.server.budget.limit_bytes = rng.choice([600, 1 << 20])
    seen: dict[Session, int] = {}
    for _ in range(rng.randrange(40)):
        match rng.randrange(6):
            case 0:
                pair.wire.unsent = rng.choice([0, 0, 1 << 20])
                pair.relay.writable()
            case 1 | 2 if pair.worker.sessions:
                _act(rng, rng.choice(pair.worker.sessions))
            case _:
                pair.relay.messages_received([_frame(rng) for _ in range(rng.randint(1, 5))])
        for _ in range(4):
            await asyncio.sleep(0)
        for session in pair.worker.sessions:
            at = session.socket.acknowledged()
            assert seen.get(session, 0) <= at <= session.socket.written
            seen[session] = at
        if pair.wire.closed is not None:
            assert pair.wire.closed[0] in (1000, 1002)
            break
    pair.relay.closed(1006, None)
    for _ in range(4):
        await asyncio.sleep(0)
    assert all(session.ended is not None for session in pair.worker.sessions)
    assert not pair.server.connections and not pair.relay.sockets
    assert pair.server.budget.used_bytes == 0


def _act(rng: random.Random, session: Session) -> None:
    socket = session.socket
    match rng.randrange(6):
        case 0 | 1:
            socket.send_messages([bytes(rng.choice(_SIZES)) for _ in range(rng.randint(1, 4))])
        case 2:
            socket.pause_reading()
        case 3:
            socket.resume_reading()
        case 4:
            socket.close(rng.choice([1000, 4001, 4008]), "text")
        case _:
            if rng.random() < 0.2:
                socket.abort()


def _frame(rng: random.Random) -> bytes:
    prefix = varint.encode(rng.choice(_IDS[: rng.randint(1, len(_IDS))]))
    match rng.randrange(8):
        case 0 | 1:
            frame = frames.ack(prefix, rng.choice([1, 100, 4096, 2**32 - 1]))
        case 2 | 3:
            frame = frames.data(prefix, framed([rng.choice([b"1", b"2", b"no", b""])]))
        case 4:
            frame = frames.data(prefix, framed([bytes(rng.choice(_SIZES))])[:STREAM_BYTES])
        case 5:
            frame = frames.error(prefix, rng.choice(list(Half)), rng.choice([0, 63, 4001]))
        case 6:
            frame = frames.close(prefix, rng.choice(list(Half)))
        case _:
            frame = frames.data(prefix, rng.randbytes(rng.randrange(12)))
    return damaged(rng, frame, times=1, longest_cut_bytes=3) if rng.random() < 0.03 else frame

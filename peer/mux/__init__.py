"""Many flow-controlled streams over one websocket (`docs/protocol/streams.md`).

async with connect("wss://host/path") as session, session.open() as stream:
    await stream.write(b"hello")
    await stream.end()
    async for chunk in stream:
        ...
"""

from __future__ import annotations

from peer.mux.client import connect
from peer.mux.session import ConnectionEndedError, MuxSession
from peer.mux.stream import MuxStream, StreamFailedError
from proto.mux.bounds import MuxBounds

__all__ = [
    "ConnectionEndedError",
    "MuxBounds",
    "MuxSession",
    "MuxStream",
    "StreamFailedError",
    "connect",
]

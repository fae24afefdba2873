"""Many flow-controlled streams over one websocket (`docs/protocol/streams.md`).

async with connect("wss://host/path") as session, session.open() as stream:
    await stream.write(b"hello")
    await stream.end()
    async for chunk in stream:
        ...
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from peer.mux.errors import ConnectionEndedError, StreamFailedError
from peer.mux.session import MuxSession
from peer.mux.stream import MuxStream
from proto.mux.bounds import MuxBounds

if TYPE_CHECKING:
    from peer.mux.client import connect

__all__ = [
    "ConnectionEndedError",
    "MuxBounds",
    "MuxSession",
    "MuxStream",
    "StreamFailedError",
    "connect",
]


def __getattr__(name: str) -> Any:
    """Import the client at its first use: servers do not need its websocket library."""
    if name != "connect":
        raise AttributeError(name)
    from peer.mux.client import connect

    return connect

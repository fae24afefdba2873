"""Remote procedure calls over one websocket, in both directions (`docs/protocol/streams.md`).

service = Service()

@service.handler("add")
async def add(params): return {"sum": params["a"] + params["b"]}

async with connect("wss://host/path", service) as peer:
    await peer.call("add", {"a": 1, "b": 2})
    async for item in peer.stream("count", {"to": 3}): ...
"""

from __future__ import annotations

from peer.rpc.peer import RpcPeer, connect
from peer.rpc.service import RawCall, Service, call_metadata
from proto.rpc.errors import (
    PublicError,
    RpcError,
    RpcRemoteError,
    RpcStreamError,
    RpcTimeoutError,
)

__all__ = [
    "PublicError",
    "RawCall",
    "RpcError",
    "RpcPeer",
    "RpcRemoteError",
    "RpcStreamError",
    "RpcTimeoutError",
    "Service",
    "call_metadata",
    "connect",
]

"""Yardstick B: the minimum that a Python relay has to do, as a bare ASGI application.

It parses the envelope, looks the destination up in a dict and sends. There is no authentication
(the twin id is taken from the token's claims, unchecked), no journal, no limit and no metric. The
bench starts it with uvicorn: `websockets-sansio`, uvloop, httptools. Every speed target of the
relay is a ratio to this program, measured in the same minutes on the same cores.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from proto.rmb.types_pb2 import Envelope

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

SessionKey = tuple[int, str | None]

sessions: dict[SessionKey, Send] = {}
parse = Envelope.FromString


def session_of(query: bytes) -> SessionKey:
    """Return the session that a token claims, unverified."""
    text = query.split(b".")[1]
    claims = json.loads(base64.urlsafe_b64decode(text + b"=" * (-len(text) % 4)))
    return claims["sub"], claims.get("sid")


async def app(scope: Message, receive: Receive, send: Send) -> None:
    """Forward every binary message of a websocket to the session it names."""
    if scope["type"] == "lifespan":
        await lifespan(receive, send)
        return
    if scope["type"] != "websocket":
        await send({"type": "http.response.start", "status": 404, "headers": []})
        await send({"type": "http.response.body", "body": b""})
        return
    key = session_of(scope["query_string"])
    await receive()
    await send({"type": "websocket.accept"})
    sessions[key] = send
    try:
        while True:
            event = await receive()
            if event["type"] == "websocket.disconnect":
                return
            body = event["bytes"]
            destination = parse(body).destination
            connection = destination.connection if destination.HasField("connection") else None
            deliver = sessions.get((destination.twin, connection))
            if deliver is not None:
                await deliver({"type": "websocket.send", "bytes": body})
    finally:
        if sessions.get(key) is send:
            del sessions[key]


async def lifespan(receive: Receive, send: Send) -> None:
    """Acknowledge the server's start and stop."""
    while True:
        event = await receive()
        await send({"type": f"{event['type']}.complete"})
        if event["type"] == "lifespan.shutdown":
            return

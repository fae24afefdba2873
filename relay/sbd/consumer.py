"""The SBD endpoint: `GET /<key>`, without a query string."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import Any

from channels.consumer import AsyncConsumer

from proto.sbd.bounds import NONCE_BYTES
from proto.sbd.errors import KeyFormatError
from proto.sbd.frames import key_of_path
from relay.sbd.connection import RULES
from relay.sbd.options import EndReason
from relay.server.asgi_socket import AsgiSocket
from relay.server.socket import EXTENSION
from relay.sessions.runtime import running

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


def key_of(scope: dict[str, Any]) -> bytes | None:
    """The key that a websocket's path names; None: it is a session of RMB."""
    if scope.get("query_string") or _has_query(scope):
        return None
    try:
        return key_of_path(scope["path"][1:])
    except KeyFormatError:
        return None


def _has_query(scope: dict[str, Any]) -> bool:
    """Whether there is a question mark with nothing behind it."""
    extension = scope.get("extensions", {}).get(EXTENSION)
    return extension is not None and extension["query"] is not None


class SbdConsumer(AsyncConsumer):  # type: ignore[misc]  # channels has no types
    """One connection of an SBD client."""

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        runtime = await running()
        event = await receive()
        key, server = key_of(scope), runtime.sbd
        if event["type"] != "websocket.connect" or key is None or server is None:
            return
        switch = server.switch
        extension = scope.get("extensions", {}).get(EXTENSION)
        pumped = None
        if extension is not None:
            socket = extension["socket"]
        else:
            socket = pumped = AsgiSocket(receive, send, scope)
        socket.set_rules(RULES)
        client = scope.get("client") or ("", 0)
        full = switch.full
        connection = switch.open(key, os.urandom(NONCE_BYTES), socket, client[0])
        try:
            await send({"type": "websocket.accept"})
            socket.start(connection)
            if full:  # the reference as well tells it only after the upgrade
                connection.end(EndReason.CAPACITY)
            else:
                connection.start()
                switch.started(connection)
        except BaseException:
            connection.end(EndReason.CLIENT_CLOSE)
            raise
        if pumped is not None:
            await pumped.run()
        else:
            del scope, event, extension, client, key
            await receive()  # the disconnect

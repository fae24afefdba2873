"""The SBD endpoint: websockets at `GET /<key>` without a query string, and `PUT /authenticate`."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import Any, Final

from channels.consumer import AsyncConsumer

from proto.sbd.bounds import NONCE_BYTES
from proto.sbd.errors import KeyFormatError
from proto.sbd.frames import key_of_path
from relay.sbd.connection import RULES
from relay.sbd.hook import METHOD
from relay.sbd.options import AuthReason, EndReason
from relay.sbd.tokens import MAX_BODY_BYTES, PATH, TEXT, Answer, Tokens
from relay.server.asgi_socket import socket_of
from relay.server.scopes import has_query, header, is_at, refuse_over_http
from relay.sessions.runtime import Runtime, running

NOT_FOUND: Final = Answer(404, TEXT, b"Not Found")
KEY_BANNED: Final = Answer(403, TEXT, b"banned")
ADDRESS_BANNED: Final = Answer(403, TEXT, b"address_banned")
NOT_ALLOWED: Final = Answer(405, TEXT, b"Method Not Allowed")

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


class SbdEndpoint:
    """Decides which requests belong to SBD, and answers them.

    On a listener of its own, these are all requests; on the public listener, `/authenticate` and
    websockets whose path is a key without a query string.
    """

    def __init__(self, places: frozenset[int | str]) -> None:
        """Create the endpoint.

        Args:
            places: ports and paths of its own listeners.
        """
        self._places = places
        self._consumer = SbdConsumer.as_asgi()

    def takes(self, scope: dict[str, Any]) -> bool:
        """Return whether a websocket belongs to SBD."""
        return is_at(scope, self._places) or (not has_query(scope) and key_of(scope) is not None)

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """Serve a websocket."""
        await self._consumer(scope, receive, send)

    def answers(self, scope: dict[str, Any]) -> bool:
        """Return whether a request that is not a websocket belongs to SBD."""
        return scope["path"] == PATH or is_at(scope, self._places)

    async def answer(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """Answer a request that is not a websocket, as the reference does."""
        if scope["path"] == PATH:
            server = (await running()).sbd
            assert server is not None
            await authenticate(scope, receive, send, server.tokens)
        elif not _is_segment(scope["path"]):
            await _answer(send, NOT_FOUND)
        elif scope["method"] != "GET":
            await _answer(send, NOT_ALLOWED, (b"allow", b"GET"))
        else:
            await _answer(send, Answer(400, TEXT, b"not a websocket handshake"))


def key_of(scope: dict[str, Any]) -> bytes | None:
    """Return the key that a websocket's path names, or None."""
    try:
        return key_of_path(scope["path"][1:])
    except KeyFormatError:
        return None


def _is_segment(path: str) -> bool:
    return len(path) > 1 and "/" not in path[1:]


def ban_of(runtime: Runtime, key: bytes | None, address: str) -> Answer | None:
    """Return the answer to a banned key or address, or None; a banned key is counted."""
    assert runtime.sbd is not None
    if runtime.worker.upkeep.control.refuses(address):
        return ADDRESS_BANNED
    if key in runtime.sbd.switch.places.decisions.banned:
        runtime.sbd.tokens.counts[AuthReason.BANNED] += 1
        return KEY_BANNED
    return None


async def refuse(scope: dict[str, Any], send: Send, answer: Answer) -> None:
    """Answer a handshake with a refusal."""
    await refuse_over_http(scope, send, answer.status, answer.body, answer.content_type)


async def authenticate(scope: dict[str, Any], receive: Receive, send: Send, tokens: Tokens) -> None:
    """Answer `PUT /authenticate`."""
    if scope["method"] != METHOD:
        await _answer(send, NOT_ALLOWED, (b"allow", METHOD.encode()))
        return
    body = b""
    more = True
    while more and len(body) <= MAX_BODY_BYTES:
        event = await receive()
        if event["type"] == "http.disconnect":
            return
        body += event.get("body", b"")
        more = event.get("more_body", False)
    answer = await tokens.authenticate(body)
    await _answer(send, answer, *([(b"connection", b"close")] if more else []))


async def _answer(send: Send, answer: Answer, *more: tuple[bytes, bytes]) -> None:
    headers = [(b"content-type", answer.content_type), *more]
    headers.append((b"content-length", b"%d" % len(answer.body)))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})


class SbdConsumer(AsyncConsumer):  # type: ignore[misc]  # channels has no types
    """One connection of an SBD client."""

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        runtime = await running()
        event = await receive()
        key, server = key_of(scope), runtime.sbd
        if event["type"] != "websocket.connect" or server is None:
            return
        switch = server.switch
        client = scope.get("client") or ("", 0)
        if (ban := ban_of(runtime, key, client[0])) is not None:
            await refuse(scope, send, ban)
            return
        if scope["path"] == PATH or not _is_segment(scope["path"]):
            await refuse(scope, send, NOT_ALLOWED if scope["path"] == PATH else NOT_FOUND)
            return
        token = await server.tokens.admit(header(scope, b"authorization"))
        if not isinstance(token, Answer):  # the ban may be new
            token = ban_of(runtime, key, client[0]) or token
        if isinstance(token, Answer):
            await refuse(scope, send, token)
            return
        if key is None:
            await refuse(scope, send, Answer(400, TEXT, b""))
            return
        socket, pumped = socket_of(scope, receive, send)
        socket.set_rules(RULES)
        full = switch.full
        connection = switch.open(key, os.urandom(NONCE_BYTES), socket, client[0], token)
        try:
            await send({"type": "websocket.accept"})
            socket.start(connection)
            if full:  # as in the reference: only after the upgrade
                connection.end(EndReason.CAPACITY)
            else:
                connection.start()
                switch.started(connection)
        except BaseException:
            connection.end(EndReason.CLIENT_CLOSE)
            raise
        if pumped is not None:
            await pumped.run()

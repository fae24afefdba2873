"""The websocket endpoint of the relay.

A Channels consumer with its own loop: no message of a session passes Channels' dispatch, a channel
layer, a task or the ORM. After the handshake the server passes whole batches of messages directly
to the session (`relay.server.socket`), and this coroutine ends.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from channels.consumer import AsyncConsumer

from proto.rmb.reasons import SessionReason
from relay.server.asgi_socket import socket_of
from relay.server.scopes import refuse_over_http, user_agent_of
from relay.server.socket import EXTENSION
from relay.sessions.admission import Refusal
from relay.sessions.runtime import running
from relay.sessions.takeover import Opening

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


class RmbConsumer(AsyncConsumer):  # type: ignore[misc]  # channels has no types
    """One connection of a twin."""

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        runtime = await running()
        event = await receive()
        if event["type"] != "websocket.connect":
            return
        client = scope.get("client") or ("", 0)
        extension = scope.get("extensions", {}).get(EXTENSION)
        query = extension["query"] if extension is not None else scope.get("query_string") or None
        try:
            admitted = await runtime.admission.admit(query, client[0])
        except Refusal as refusal:
            runtime.admission.note_refusal(refusal, client[0])
            body = refusal.text.encode()
            await refuse_over_http(scope, send, refusal.status, body, reason=refusal.text)
            return
        user_agent = user_agent_of(scope)
        bound = runtime.config.relay.max_message_bytes
        socket, pumped = socket_of(scope, receive, send, max_message_bytes=bound)
        opening = Opening()
        session = runtime.worker.open(admitted.key, socket, admitted.twin, user_agent, opening)
        try:
            await opening.claimed()  # if replaced already, a close frame follows at once
            await send({"type": "websocket.accept"})
            socket.start(session, admitted.key[0])
        except BaseException:
            runtime.worker.end(session, SessionReason.CLIENT_CLOSE)
            raise
        finally:
            opening.answer_made()
        if pumped is not None:
            await pumped.run()

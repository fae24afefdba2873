"""The websocket endpoint of the relay.

A Channels consumer with its own loop: no message of a session passes Channels' dispatch, a channel
layer, a task or the ORM. After the handshake the server hands whole batches of messages straight to
the session (`relay.server.socket`), and this coroutine only waits for the end of the connection.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from channels.consumer import AsyncConsumer

from proto.rmb.reasons import SessionReason
from relay.server.asgi_socket import AsgiSocket
from relay.server.socket import EXTENSION
from relay.sessions.admission import Refusal
from relay.sessions.runtime import running
from relay.sessions.takeover import Opening

ANSWER: Final = "websocket.http.response"
TEXT: Final = b"text/plain; charset=utf-8"
USER_AGENT_CHARS: Final = 200

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
        pumped = None
        if extension is not None:
            socket = extension["socket"]
        else:
            socket = pumped = AsgiSocket(receive, send, scope, max_message_bytes=bound)
        opening = Opening()
        session = runtime.worker.open(admitted.key, socket, admitted.twin, user_agent, opening)
        try:
            await opening.claimed()  # or replaced already: then a close frame follows at once
            await send({"type": "websocket.accept"})
            socket.start(session, admitted.key[0])
        except BaseException:
            runtime.worker.end(session, SessionReason.CLIENT_CLOSE)
            raise
        finally:
            opening.answer_made()
        if pumped is not None:
            await pumped.run()
        else:
            del scope, event, admitted, extension, client, query, user_agent, opening
            await receive()  # the disconnect


async def refuse_over_http(
    scope: dict[str, Any],
    send: Send,
    status: int,
    body: bytes,
    content_type: bytes = TEXT,
    reason: str = "",
) -> None:
    """Answer a handshake over HTTP; a server that cannot do so closes with 403."""
    if ANSWER not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": 1008, "reason": reason})
        return
    headers = [(b"content-type", content_type), (b"connection", b"close")]
    headers.append((b"content-length", b"%d" % len(body)))
    await send({"type": f"{ANSWER}.start", "status": status, "headers": headers})
    await send({"type": f"{ANSWER}.body", "body": body})


def user_agent_of(scope: dict[str, Any]) -> str:
    """What the client says it is."""
    for key, value in scope.get("headers", ()):
        if key == b"user-agent":
            return str(value, "latin-1")[:USER_AGENT_CHARS]
    return ""

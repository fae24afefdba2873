"""Helpers of several endpoints: read an ASGI scope, and refuse a handshake."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Iterable
from typing import Any, Final

from relay.server.socket import EXTENSION

ANSWER: Final = "websocket.http.response"
TEXT: Final = b"text/plain; charset=utf-8"
USER_AGENT_CHARS: Final = 200

Send = Callable[[dict[str, Any]], Awaitable[None]]


def header(scope: dict[str, Any], name: bytes) -> bytes | None:
    """Return the first header of a name given in lower case; None if the request has none."""
    for key, value in scope.get("headers", ()):
        if key == name:
            return bytes(value)
    return None


def user_agent_of(scope: dict[str, Any]) -> str:
    """Return the client's User-Agent header."""
    return str(header(scope, b"user-agent") or b"", "latin-1")[:USER_AGENT_CHARS]


def has_query(scope: dict[str, Any]) -> bool:
    """Check whether the URL has a question mark, with or without anything after it."""
    extension = scope.get("extensions", {}).get(EXTENSION)
    return bool(scope.get("query_string")) or (
        extension is not None and extension["query"] is not None
    )


def is_at(scope: dict[str, Any], places: Container[int | str]) -> bool:
    """Check whether a request arrived at one of these listeners.

    Args:
        places: Ports, and paths of Unix sockets.
    """
    server = scope.get("server") or ("", None)
    return (server[0] if server[1] is None else server[1]) in places


async def refuse_over_http(
    scope: dict[str, Any],
    send: Send,
    status: int,
    body: bytes,
    content_type: bytes = TEXT,
    reason: str = "",
    headers: Iterable[tuple[bytes, bytes]] = (),
) -> None:
    """Refuse a handshake over HTTP; a server that does not support this closes with 403."""
    if ANSWER not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": 1008, "reason": reason})
        return
    lines = [(b"content-type", content_type), (b"connection", b"close"), *headers]
    lines.append((b"content-length", b"%d" % len(body)))
    await send({"type": f"{ANSWER}.start", "status": status, "headers": lines})
    await send({"type": f"{ANSWER}.body", "body": body})

"""The ASGI events of one websocket, between its connection and the application.

The application's part is small: it receives `websocket.connect` and answers with its verdict.
Messages go directly between `FrameProtocol` and its receiver, which is also notified of the end, so
an application that has started a receiver may return. One that waits for `websocket.disconnect`
takes 2 KB of memory meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

from uvicorn.protocols.utils import ClientDisconnected

from proto.websocket.errors import CloseCode
from relay.server.handshake import Headers, http_answer, switching_protocols

if TYPE_CHECKING:
    from relay.server.frame_protocol import FrameProtocol

MAX_ANSWER_BYTES: Final = 64 * 1024  # body of an HTTP answer before the upgrade
FAILED: Final = "internal error"
"""Text of the answer, or the close frame, when the application fails."""

logger = logging.getLogger(__name__)


class Conversation:
    """Runs the application for one connection and carries out its verdict."""

    __slots__ = ("_answer", "_connect_told", "_connection", "_key", "_path")

    def __init__(self, connection: FrameProtocol, path: str, key: bytes) -> None:
        """Begin a conversation.

        Args:
            connection: Connection to be accepted or refused.
            path: Path of the request, for the log.
            key: Key of the handshake.
        """
        self._connection = connection
        self._path = path
        self._key = key
        self._connect_told = False
        self._answer: tuple[int, Headers, bytes] | None = None

    async def run(self, app: Any, scope: dict[str, Any]) -> None:
        """Call the application, and make sure that nothing stays open when it ends."""
        connection = self._connection
        try:
            await app(scope, self._receive, self._send)
        except ClientDisconnected:
            pass
        except asyncio.CancelledError:  # the server no longer waits for it
            connection.abort()
            raise
        except Exception:
            logger.exception("the application failed on a websocket")
            if connection.undecided:
                self._refuse(500, FAILED.encode())
            else:
                connection.close(CloseCode.INTERNAL_ERROR, FAILED)
        else:
            if connection.undecided:
                logger.error("the application ended without an answer to a websocket")
                self._refuse(500, FAILED.encode())
            elif not connection.started:
                connection.close(CloseCode.NORMAL, "")

    async def _receive(self) -> dict[str, Any]:
        if not self._connect_told:
            self._connect_told = True
            return {"type": "websocket.connect"}
        code = await self._connection.wait_closed()
        return {"type": "websocket.disconnect", "code": code, "reason": ""}

    async def _send(self, message: dict[str, Any]) -> None:
        connection = self._connection
        if connection.over:
            raise ClientDisconnected
        kind = message["type"]
        if not connection.undecided:
            if kind != "websocket.close":
                raise RuntimeError(f"{kind}: messages go through scope['extensions'] here")
            connection.close(message.get("code", CloseCode.NORMAL), message.get("reason") or "")
        elif kind == "websocket.accept":
            self._accept(message)
        elif kind == "websocket.close":
            self._refuse(403, b"")
        elif kind == "websocket.http.response.start":
            self._answer = (message["status"], list(message.get("headers", ())), b"")
        elif kind == "websocket.http.response.body" and self._answer is not None:
            status, headers, body = self._answer
            body += message.get("body", b"")
            if len(body) > MAX_ANSWER_BYTES:
                raise RuntimeError(f"an answer before the upgrade is bounded to {MAX_ANSWER_BYTES}")
            self._answer = (status, headers, body)
            if not message.get("more_body", False):
                self._refuse(status, body, headers)
        else:
            raise RuntimeError(f"{kind} is not an answer to a websocket handshake")

    def _accept(self, message: dict[str, Any]) -> None:
        headers: Headers = list(message.get("headers", ()))
        subprotocol = message.get("subprotocol")
        if subprotocol:
            headers.append((b"sec-websocket-protocol", subprotocol.encode("ascii")))
        self._log_verdict("accepted")
        self._connection.accept(switching_protocols(self._key, headers))

    def _refuse(self, status: int, body: bytes, headers: Headers | None = None) -> None:
        self._log_verdict(status)
        self._connection.refuse(http_answer(status, body, headers))

    def _log_verdict(self, verdict: str | int) -> None:
        # The query string is the client's token: it is never logged.
        logger.debug("%s websocket %r %s", self._connection.remote, self._path, verdict)

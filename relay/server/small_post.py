"""A POST that came in one piece, for an application that answers such without ASGI.

What other relays bring one message at a time is small and comes by the thousand: scope, task and
events of ASGI cost more than all the rest of it. So `http_protocol` offers a request whose last
byte was read together with its first one, and whose path the application asked for. What is
larger, chunked over several reads, pipelined or came through a proxy goes the usual way, with its
bounds in size and time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

if TYPE_CHECKING:
    from relay.server.http_protocol import RelayHttpProtocol

Headers = Sequence[tuple[bytes, bytes]]

FORWARDED: Final = b"x-forwarded-"
"""What a proxy says is judged elsewhere (`client_address`)."""


class SmallPost:
    """One request, in uvicorn's eyes a cycle: a later one of the connection waits for its answer.

    Attributes:
        path: as the client wrote it.
        headers: names in lower case.
        address: of the client.
        body: all of it.
        more_body: nothing of it is still to come.
    """

    more_body = False

    __slots__ = (
        "_protocol",
        "address",
        "body",
        "disconnected",
        "headers",
        "keep_alive",
        "message_event",
        "path",
        "response_complete",
    )

    def __init__(
        self, protocol: RelayHttpProtocol, path: bytes, headers: Headers, address: str, body: bytes
    ) -> None:
        self.path = path
        self.headers = headers
        self.address = address
        self.body = body
        self.keep_alive = True
        self.disconnected = False
        self.response_complete = False
        self.message_event = _NOBODY_WAITS
        self._protocol = protocol

    def answer(self, status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes) -> None:
        """Answers it, once. Nothing happens where the client is gone."""
        if self.disconnected:
            return
        self.response_complete = True
        protocol = self._protocol
        parts = [STATUS_LINE[status]]
        for name, value in (*protocol.server_state.default_headers, *headers):
            parts += (name, b": ", value, b"\r\n")
        if not self.keep_alive:
            parts.append(b"connection: close\r\n")
        parts += (b"content-length: %d\r\n\r\n" % len(body), body)
        protocol.transport.write(b"".join(parts))
        if not self.keep_alive:
            protocol.transport.close()
        protocol.on_response_complete()


TakePost = Callable[[SmallPost], bool]
"""Takes a request, and answers it now or later; False where it must go the usual way."""


class _NobodyWaits:
    def set(self) -> None:
        """The client is gone, or has its answer: nobody waits for more of the request."""


_NOBODY_WAITS: Final[Any] = _NobodyWaits()

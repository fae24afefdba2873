"""A POST that arrived in one piece, for an application that answers it without ASGI.

Messages that partner relays post one at a time are small and arrive by the thousand: scope, task
and events of ASGI would cost more than all other work. So `http_protocol` offers the application
each request whose last byte was read together with its first one, and whose path the application
asked for. Requests that are larger, spread over several reads, pipelined, or from a proxy go
through ASGI, with its bounds in size and time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

if TYPE_CHECKING:
    from relay.server.http_protocol import RelayHttpProtocol

Headers = tuple[tuple[bytes, bytes], ...]

MAX_HEADS: Final = 256
FORWARDED: Final = b"x-forwarded-"
"""Prefix of headers of proxies, which are checked elsewhere (`client_address`)."""


class SmallPost:
    """One request; for uvicorn a cycle: a later request of the connection waits for its answer.

    Attributes:
        path: Path as the client wrote it.
        headers: Headers, with names in lower case.
        address: Address of the client.
        body: Complete body.
        more_body: Always false: no more of the body is to come.
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
        self,
        protocol: RelayHttpProtocol,
        path: bytes,
        headers: Sequence[tuple[bytes, bytes]],
        address: str,
        body: bytes,
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
        """Answer the request, once. Does nothing if the client is gone."""
        if self.disconnected:
            return
        self.response_complete = True
        protocol = self._protocol
        default = protocol.server_state.default_headers
        head = protocol.answer_heads.get(default, status, tuple(headers), len(body))
        if self.keep_alive:
            protocol.transport.write(b"%b\r\n%b" % (head, body))
        else:
            protocol.transport.write(b"%bconnection: close\r\n\r\n%b" % (head, body))
            protocol.transport.close()
        protocol.post_answered()


class AnswerHeads:
    """Cache of status lines and headers. Within a second, with the same date, few differ."""

    def __init__(self) -> None:
        self._default: Sequence[tuple[bytes, bytes]] | None = None
        self._heads: dict[tuple[int, Headers, int], bytes] = {}

    def get(
        self, default: Sequence[tuple[bytes, bytes]], status: int, headers: Headers, length: int
    ) -> bytes:
        """Return one head without the empty line.

        Args:
            default: Headers of all answers; another object whenever they change.
            status: HTTP status of the answer.
            headers: Additional headers of this answer.
            length: Size of its body, in bytes.
        """
        if default is not self._default or len(self._heads) >= MAX_HEADS:
            self._default = default
            self._heads.clear()
        head = self._heads.get((status, headers, length))
        if head is None:
            lines = (b"%b: %b\r\n" % header for header in (*default, *headers))
            head = b"%b%bcontent-length: %d\r\n" % (STATUS_LINE[status], b"".join(lines), length)
            self._heads[status, headers, length] = head
        return head


TakePost = Callable[[SmallPost], bool]
"""Takes a request, and answers it now or later; returns False if it must go through ASGI."""


class _NobodyWaits:
    def set(self) -> None:
        """Do nothing: the request needs no more input, or its client is gone."""


_NOBODY_WAITS: Final[Any] = _NobodyWaits()

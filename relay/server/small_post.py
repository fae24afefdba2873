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

Headers = tuple[tuple[bytes, bytes], ...]

MAX_HEADS: Final = 256
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
        """Answers it, once. Nothing happens where the client is gone."""
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
    """Status lines and headers of answers. For a second, as the date is the same, there are few."""

    def __init__(self) -> None:
        self._default: Sequence[tuple[bytes, bytes]] | None = None
        self._heads: dict[tuple[int, Headers, int], bytes] = {}

    def get(
        self, default: Sequence[tuple[bytes, bytes]], status: int, headers: Headers, length: int
    ) -> bytes:
        """One head without the empty line.

        Args:
            default: headers of all answers; another object when they change.
            status: of the answer.
            headers: further ones of this answer.
            length: of its body.
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
"""Takes a request, and answers it now or later; False where it must go the usual way."""


class _NobodyWaits:
    def set(self) -> None:
        """The client is gone, or has its answer: nobody waits for more of the request."""


_NOBODY_WAITS: Final[Any] = _NobodyWaits()

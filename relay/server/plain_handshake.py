"""A websocket handshake that came in one piece, for an application that answers such without ASGI.

After a restart all clients of a relay sign in at once, and parser, scope, task and coroutines of
ASGI cost more than the rest of it. So `http_protocol` reads the usual request for itself: the first
bytes of a TCP connection, whole, to `/` with a token and without a subprotocol. Whatever differs
(another path, a proxy's headers, a body, a header twice) takes the usual way, which judges it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from relay.server.handshake import VERSION, http_answer, is_key, switching_protocols
from relay.server.scopes import USER_AGENT_CHARS

if TYPE_CHECKING:
    from relay.server.frame_protocol import FrameProtocol

_REQUEST: Final = re.compile(
    rb"GET /\?([A-Za-z0-9_.=-]+) HTTP/1\.1\r\n"
    rb"((?:[!#$%&'*+.^_`|~0-9A-Za-z-]+:[\t -~\x80-\xff]*\r\n)+)\r\n"
)
_BLANKS: Final = b" \t"
_ELSEWHERE: Final = frozenset(
    {
        b"content-length",
        b"transfer-encoding",
        b"expect",
        b"x-forwarded-for",
        b"x-forwarded-proto",
        b"sec-websocket-protocol",
    }
)
"""Headers whose requests take the usual way."""

logger = logging.getLogger(__name__)


class Plain(NamedTuple):
    """What such a request says.

    Attributes:
        query: the query string.
        key: of the websocket handshake.
    """

    query: bytes
    key: bytes
    user_agent: str


def read(data: bytes) -> Plain | None:
    """Read what a connection began with; None where it takes the usual way."""
    match = _REQUEST.fullmatch(data)
    if match is None:
        return None
    query, head = match.groups()
    headers: dict[bytes, bytes] = {}
    lines = head.split(b"\r\n")
    lines.pop()  # the empty rest behind the last one
    for line in lines:
        name, _, value = line.partition(b":")
        headers[name.lower()] = value.strip(_BLANKS)
    key = headers.get(b"sec-websocket-key", b"")
    if (
        len(headers) != len(lines)
        or headers.get(b"upgrade", b"").lower() != b"websocket"
        or headers.get(b"connection", b"").lower() != b"upgrade"
        or headers.get(b"sec-websocket-version") != VERSION
        or not _ELSEWHERE.isdisjoint(headers)
        or not is_key(key)
    ):
        return None
    agent = headers.get(b"user-agent", b"")
    return Plain(query, key, str(agent, "latin-1")[:USER_AGENT_CHARS])


class PlainHandshake:
    """One handshake, to be accepted or refused.

    Attributes:
        socket: of the connection; it may be over.
        query: the query string.
        address: of the client, without a port.
        user_agent: what the client says it is.
    """

    __slots__ = ("_key", "address", "query", "socket", "user_agent")

    def __init__(self, socket: FrameProtocol, address: str, request: Plain) -> None:
        self.socket = socket
        self.address = address
        self.query, self._key, self.user_agent = request

    def accept(self) -> None:
        """Make it a websocket."""
        logger.debug("%s websocket accepted", self.socket.remote)
        self.socket.accept(switching_protocols(self._key))

    def refuse(self, status: int, text: str) -> None:
        """Answer over HTTP; nothing happens where the client is gone."""
        if not self.socket.over:
            logger.debug("%s websocket refused: %d", self.socket.remote, status)
            self.socket.refuse(http_answer(status, text.encode()))


TakeHandshake = Callable[[PlainHandshake], None]
"""Takes a handshake, and answers it now or later."""

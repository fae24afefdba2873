"""A websocket handshake that arrived in one piece, for applications that answer it without ASGI.

After a restart all clients of a relay sign in at once, and parser, scope, task and coroutines of
ASGI cost more than the rest of a sign-in. So `http_protocol` reads the usual request itself: the
first bytes of a TCP connection, complete, to `/` with a token and without a subprotocol. A request
that differs in any way (another path, a proxy's headers, a body, a repeated header) goes through
ASGI, which decides about it.
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
"""Headers whose requests go through ASGI."""

logger = logging.getLogger(__name__)


class Plain(NamedTuple):
    """Contents of such a request.

    Attributes:
        query: Query string.
        key: Key of the websocket handshake.
    """

    query: bytes
    key: bytes
    user_agent: str


def read(data: bytes) -> Plain | None:
    """Read the first bytes of a connection; None if the request has to go through ASGI."""
    match = _REQUEST.fullmatch(data)
    if match is None:
        return None
    query, head = match.groups()
    headers: dict[bytes, bytes] = {}
    lines = head.split(b"\r\n")
    lines.pop()  # the empty rest after the last one
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
        socket: Socket of the connection, which may have ended.
        query: Query string.
        address: Address of the client, without a port.
        user_agent: User-Agent header of the client.
    """

    __slots__ = ("_key", "address", "query", "socket", "user_agent")

    def __init__(self, socket: FrameProtocol, address: str, request: Plain) -> None:
        self.socket = socket
        self.address = address
        self.query, self._key, self.user_agent = request

    def accept(self) -> None:
        """Accept the handshake: the connection becomes a websocket."""
        logger.debug("%s websocket accepted", self.socket.remote)
        self.socket.accept(switching_protocols(self._key))

    def refuse(self, status: int, text: str) -> None:
        """Refuse the handshake over HTTP; does nothing if the client is gone."""
        if not self.socket.over:
            logger.debug("%s websocket refused: %d", self.socket.remote, status)
            self.socket.refuse(http_answer(status, text.encode()))


TakeHandshake = Callable[[PlainHandshake], None]
"""Takes a handshake, and answers it now or later."""

"""The HTTP part of a websocket handshake (RFC 6455, section 4.2), without a library's objects.

Signing in is the expensive part of a connection, so the server adds little to it: the request has
already been parsed, so this module only checks its headers and assembles the answer as bytes.
"""

from __future__ import annotations

import binascii
import hashlib
import time
from collections.abc import Iterable
from email.utils import formatdate
from http import HTTPStatus
from typing import Final, NamedTuple

Headers = list[tuple[bytes, bytes]]

ACCEPT_SALT: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
KEY_BYTES: Final = 16
KEY_TEXT_BYTES: Final = 24
VERSION: Final = b"13"

_SWITCHING: Final = (
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Accept: "
)
STATUS_LINES: Final = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}


class HandshakeError(Exception):
    """The request is not a valid websocket handshake.

    Attributes:
        status: HTTP status of the answer.
        headers: Headers to be added to the answer.
    """

    def __init__(self, status: int, text: str, headers: Headers | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.headers = headers or []


class Handshake(NamedTuple):
    """Contents of the headers of a handshake.

    Attributes:
        key: Key as the client sent it.
        subprotocols: Subprotocols offered, in order.
    """

    key: bytes
    subprotocols: list[str]


def read_handshake(
    method: str, http_version: str, headers: Iterable[tuple[bytes, bytes]]
) -> Handshake:
    """Check a request that asks for an upgrade to websocket.

    Args:
        method: HTTP method of the request.
        http_version: HTTP version, such as "1.1".
        headers: Headers with names in lower case.

    Raises:
        HandshakeError: This server cannot accept the request.
    """
    if method != "GET" or http_version != "1.1":
        raise HandshakeError(400, "a websocket handshake is a GET of HTTP/1.1")
    key: bytes | None = None
    version: bytes | None = None
    subprotocols: list[str] = []
    for name, value in headers:
        if name == b"sec-websocket-key":
            if key is not None:
                raise HandshakeError(400, "more than one Sec-WebSocket-Key")
            key = value.strip()
        elif name == b"sec-websocket-version":
            version = value.strip()
        elif name == b"sec-websocket-protocol":
            subprotocols += [token.strip() for token in value.decode("latin-1").split(",")]
    if version != VERSION:
        raise HandshakeError(
            426, "websocket version 13 only", [(b"sec-websocket-version", VERSION)]
        )
    if key is None or not is_key(key):
        raise HandshakeError(400, "Sec-WebSocket-Key must be 16 bytes in base64")
    return Handshake(key, subprotocols)


def is_key(key: bytes) -> bool:
    """Check whether a `Sec-WebSocket-Key` is well-formed."""
    if len(key) != KEY_TEXT_BYTES:
        return False
    try:
        return len(binascii.a2b_base64(key, strict_mode=True)) == KEY_BYTES
    except binascii.Error:
        return False


def switching_protocols(key: bytes, headers: Headers | None = None) -> bytes:
    """Return the answer that accepts a handshake."""
    accept = binascii.b2a_base64(hashlib.sha1(key + ACCEPT_SALT).digest())[:-1]
    lines = _header_lines(headers) if headers else b""
    return b"%b%b\r\n%b%b\r\n" % (_SWITCHING, accept, lines, _date_line())


def _date_line() -> bytes:
    """Return the Date header, by which a client can notice that its clock is wrong."""
    global _date
    now_s = int(time.time())
    if _date[0] != now_s:
        _date = (now_s, f"Date: {formatdate(now_s, usegmt=True)}\r\n".encode())
    return _date[1]


_date = (0, b"")  # for the last second in which one was needed


def http_answer(status: int, body: bytes, headers: Headers | None = None) -> bytes:
    """Return a complete answer, after which the connection is closed."""
    lines: Headers = list(headers or [])
    names = {name.lower() for name, _ in lines}
    if b"content-type" not in names:
        lines.append((b"content-type", b"text/plain; charset=utf-8"))
    lines = [line for line in lines if line[0].lower() not in (b"content-length", b"connection")]
    lines += [(b"content-length", b"%d" % len(body)), (b"connection", b"close")]
    status_line = STATUS_LINES.get(status, b"HTTP/1.1 %d \r\n" % status)
    return b"%b%b%b\r\n%b" % (status_line, _header_lines(lines), _date_line(), body)


def _header_lines(headers: Headers) -> bytes:
    for name, value in headers:
        if b"\r" in value or b"\n" in value or b"\r" in name or b"\n" in name:
            raise ValueError(f"header {name!r} holds a line break")
    return b"".join(b"%b: %b\r\n" % header for header in headers)

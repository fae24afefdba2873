"""Bounds in time and size of the heads of requests to the operator site.

The public listener has more of them (`http_protocol`); the site's websockets are uvicorn's own.

    uvicorn.Config(app, http=bounded_http(limits), ...)
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from relay.server.handshake import http_answer
from relay.server.limits import ServerLimits


class _TooLargeError(Exception):
    """Raised through the parser to stop it."""


class BoundedHttpProtocol(HttpToolsProtocol):
    """uvicorn's HTTP, with an end to heads that are too large or too slow."""

    limits: ServerLimits

    _raw_bytes = 0
    """Read since the last request ended, while a head is not complete."""
    _header_bytes = 0
    """Of the request line and the headers the parser told of."""
    _in_head = True
    _ended = False  # a request, within the read that the parser has
    _too_large = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.limits.handshakes.add(self, transport.abort, self.loop)

    def connection_lost(self, exc: Exception | None) -> None:
        self.limits.handshakes.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._too_large:
            return  # answered; what still comes is of no interest
        later = self.cycle is not None and self.cycle.response_complete
        if later and self._in_head and not self._raw_bytes:
            self.limits.handshakes.add(self, self.transport.abort, self.loop)
        self._ended = False
        super().data_received(data)
        if self._in_head and not self._too_large:
            # The parser tells of a header when it is complete; this bounds what it holds back.
            self._raw_bytes = 0 if self._ended else self._raw_bytes + len(data)
            if self._raw_bytes > self.limits.max_head_bytes:
                self._refuse()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._header_bytes = 0

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self._count(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head, self._raw_bytes = False, 0
        self.limits.handshakes.remove(self)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_head = self._ended = True
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        if not self._too_large:
            super().send_400_response(msg)

    def _refuse(self) -> None:
        """Answer, and read on without looking until the client has the answer."""
        self._too_large = True
        self.transport.write(http_answer(431, b"request header too large"))
        if self.transport.can_write_eof():
            self.transport.write_eof()
            self.limits.handshakes.add(self, self.transport.abort, self.loop)
        else:
            self.transport.close()

    def _count(self, size: int) -> None:
        self._header_bytes += size
        if self._header_bytes > self.limits.max_head_bytes:
            self._refuse()
            raise _TooLargeError


def bounded_http(limits: ServerLimits) -> type[BoundedHttpProtocol]:
    """The protocol class for uvicorn's `http` option; its connections share the limits."""
    return type("BoundHttpProtocol", (BoundedHttpProtocol,), {"limits": limits})

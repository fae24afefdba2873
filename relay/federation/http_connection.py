"""One HTTP/1.1 connection to another relay, with bounds for every part of an answer.

The parser is the one that the relay's own listener uses (llhttp, by httptools). A connection serves
one request at a time. Its holder gets the answer, and returns the connection to its pool or closes
it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

import httptools

MAX_HEAD_BYTES: Final = 16 << 10
"""Maximum size of an answer's status line and headers, in bytes."""
MAX_IGNORED_BYTES: Final = 16 << 10
"""Maximum size of a body that is not needed, in bytes; it is read so that the connection can be
used again."""
IGNORED_BODY_S: Final = 0.25
"""Seconds to wait for the end of a body that is not needed."""
TOO_LONG: Final = "the head of the answer is too long"


class Answer(NamedTuple):
    """The answer to a request.

    Attributes:
        status: HTTP status.
        headers: values by name in lower case; of several with one name the last.
        body: as much as was asked for, and one more byte of a longer one.
    """

    status: int
    headers: dict[bytes, bytes]
    body: bytes


class BadAnswer(Exception):
    """The answer is not HTTP, or exceeds a bound."""


Came = Callable[["Answer | Exception"], None]
"""Called with the answer, or with `BadAnswer`, `ConnectionError` or `TimeoutError`."""


class HttpConnection(asyncio.Protocol):
    """A connection on which requests are made.

    Attributes:
        open: whether the connection is established.
        idle_since: loop time of its last use.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.open = False
        self.idle_since = 0.0
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._came: Came | None = None  # of the request in flight
        self._timer: asyncio.TimerHandle | None = None
        self._wanted = 0
        self._head_bytes = 0  # received before the end of the head
        self._header_bytes = 0  # of names and values
        self._in_body = False
        self._reusable = True  # true before the first request, too
        self._patience: asyncio.TimerHandle | None = None
        self._headers: dict[bytes, bytes] = {}
        self._body: list[bytes] = []
        self._body_bytes = 0

    def request(self, head: bytes, body: bytes, wanted: int, timeout_s: float, came: Came) -> None:
        """Write a request.

        Args:
            head: request line and headers with the empty line.
            body: body of the request.
            wanted: number of bytes needed of the answer's body; with 0 a complete head is an answer
                even if the body does not end.
            timeout_s: seconds to wait for the answer.
            came: called once in a later turn of the loop, unless the connection is closed before.
        """
        assert self._transport is not None and self._came is None and self._reusable
        self._wanted = wanted
        self._in_body = self._reusable = False
        self._head_bytes = self._header_bytes = self._body_bytes = 0
        self._headers = {}
        self._body = []
        self._came = came
        # A plain timer, as the general `asyncio.timeout` takes as long as writing the request.
        self._timer = self._loop.call_later(timeout_s, self._time_out)
        if len(body) < MAX_HEAD_BYTES:
            self._transport.write(head + body)
        else:
            self._transport.writelines((head, body))

    @property
    def reusable(self) -> bool:
        """Whether the whole answer was received and the peer keeps the connection open."""
        return self.open and self._reusable

    def close(self) -> None:
        """Close the connection at once; the callback of a request in flight is not called."""
        self.open = False
        self._came = None
        if self._timer is not None:
            self._timer.cancel()
        if self._patience is not None:
            self._patience.cancel()
        if self._transport is not None:
            self._transport.abort()

    # --- asyncio.Protocol ---------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        self.open = True

    def data_received(self, data: bytes) -> None:
        if self._reusable:
            self.close()  # data without a request
            return
        if not self._in_body:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(BadAnswer(str(error) or "not HTTP"))
            return
        if self._in_body:
            if not self._wanted and self._patience is None:
                self._patience = self._loop.call_later(IGNORED_BODY_S, self._lose_patience)
        elif not self._reusable and self._head_bytes > MAX_HEAD_BYTES:
            self._fail(BadAnswer(TOO_LONG))

    def connection_lost(self, exc: Exception | None) -> None:
        self.open = False
        if self._in_body and exc is None and b"content-length" not in self._headers:
            self._answer()  # the end of the connection is the end of the body
        self._fail(ConnectionError("the connection ended"))

    # --- httptools ----------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._reusable:
            raise BadAnswer("more than one answer")

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_bytes += len(name) + len(value)
        if self._header_bytes > MAX_HEAD_BYTES:
            raise BadAnswer(TOO_LONG)
        self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        if self._status >= 200:
            self._in_body = True

    def on_body(self, body: bytes) -> None:
        limit = self._wanted or MAX_IGNORED_BYTES
        self._body_bytes += len(body)
        if self._wanted:
            self._body.append(body)
        if self._body_bytes > limit:
            self._answer()
            self.close()

    def on_message_complete(self) -> None:
        if self._status < 200:  # "continue" and its like: the answer follows
            self._headers = {}
            return
        self._in_body = False
        self._reusable = self._parser.should_keep_alive()
        self._answer()

    @property
    def _status(self) -> int:
        status: int = self._parser.get_status_code()
        return status

    @property
    def _early(self) -> Answer | None:
        """The head of an answer whose body is not needed and has not ended; None otherwise."""
        if self._in_body and not self._wanted:
            return Answer(self._status, self._headers, b"")
        return None

    def _time_out(self) -> None:
        self._fail(TimeoutError())

    def _lose_patience(self) -> None:
        self._fail(BadAnswer("the body does not end"))

    def _answer(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._came is not None:
            body = b"".join(self._body)[: self._wanted + 1]
            self._tell(Answer(self._status, self._headers, body))

    def _fail(self, error: Exception) -> None:
        if self._came is not None:
            self._tell(self._early or error)
        self.close()

    def _tell(self, outcome: Answer | Exception) -> None:
        came, self._came = self._came, None
        if came is not None:
            # Not at once: the callback may begin the next request while the parser is inside this
            # one.
            self._loop.call_soon(came, outcome)

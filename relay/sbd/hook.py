"""Client of a hook server: requests run in threads of their own, each with one total time-out.

A hook server that does not answer, or answers very slowly, blocks these threads for that time, but
no others.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Final
from urllib.parse import urlsplit

METHOD: Final = "PUT"
HEADERS: Final = {"Content-Type": "application/octet-stream", "Connection": "close"}


class HookClient:
    """Client of one hook server."""

    def __init__(self, url: str, max_requests: int) -> None:
        """Create a client.

        Args:
            max_requests: maximum number of concurrent requests, which the owner must not exceed.
        """
        self._url = url
        self._threads = ThreadPoolExecutor(max_requests, "sbd-hook")
        self._requests: set[_Request] = set()

    async def put(self, body: bytes, timeout_s: float, max_bytes: int) -> tuple[int, bytes]:
        """Send a body.

        Args:
            timeout_s: seconds to wait for the whole answer.
            max_bytes: maximum number of bytes to read of the answer.

        Returns:
            The status, and the body of the answer.

        Raises:
            OSError: the server did not answer.
            http.client.HTTPException: the answer is not HTTP.
            TimeoutError: the answer was not complete in time.
        """
        request = _Request(self._url, body, timeout_s, max_bytes)
        self._requests.add(request)
        try:
            async with asyncio.timeout(timeout_s):
                loop = asyncio.get_running_loop()
                return await loop.run_in_executor(self._threads, request.run)
        finally:
            request.cut()
            self._requests.discard(request)

    def close(self) -> None:
        """Cancel all requests."""
        for request in self._requests:
            request.cut()
        self._threads.shutdown(wait=False, cancel_futures=True)


class _Request:
    """One request, which runs in a thread and can be cancelled from the event loop."""

    def __init__(self, url: str, body: bytes, timeout_s: float, max_bytes: int) -> None:
        self._parts = urlsplit(url)
        self._body = body
        self._timeout_s = timeout_s
        self._max_bytes = max_bytes
        self._socket: socket.socket | None = None
        self._over = False

    def run(self) -> tuple[int, bytes]:
        """Send the request and return the answer; blocks."""
        parts = self._parts
        https = parts.scheme == "https"
        kind = http.client.HTTPSConnection if https else http.client.HTTPConnection
        connection = kind(parts.netloc, timeout=self._timeout_s)
        try:
            connection.connect()
            self._socket = connection.sock
            if self._over:
                raise TimeoutError
            path = f"{parts.path or '/'}{'?' if parts.query else ''}{parts.query}"
            connection.request(METHOD, path, self._body, HEADERS)
            return read_answer(connection, self._max_bytes)
        finally:
            connection.close()

    def cut(self) -> None:
        """Cancel the request, which may have ended already."""
        self._over = True
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)


def read_answer(connection: http.client.HTTPConnection, max_bytes: int) -> tuple[int, bytes]:
    """Read the status and body of the answer to a request that was sent.

    Raises:
        OSError: there is no answer.
        http.client.HTTPException: the answer is not HTTP.
    """
    reply = connection.getresponse()
    try:
        return reply.status, reply.read(max_bytes)
    except (ValueError, OverflowError) as error:  # a chunk size below 0
        raise http.client.HTTPException(f"invalid body: {error}") from error

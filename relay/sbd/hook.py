"""Requests to a hook server: in threads of their own, each with one time for all of it.

A hook server that does not answer, or sends a byte now and then, keeps its threads for that time,
and nobody else's.
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
    """The way to one hook server."""

    def __init__(self, url: str, max_requests: int) -> None:
        """
        Args:
            max_requests: at a time; the owner asks for no more.
        """
        self._url = url
        self._threads = ThreadPoolExecutor(max_requests, "sbd-hook")
        self._requests: set[_Request] = set()

    async def put(self, body: bytes, timeout_s: float, max_bytes: int) -> tuple[int, bytes]:
        """Send a body.

        Args:
            timeout_s: for all of the answer.
            max_bytes: that are read of it.

        Returns:
            Status, and the answer.

        Raises:
            OSError: it did not answer.
            http.client.HTTPException: its answer is not HTTP.
            TimeoutError: its answer was not there in time.
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
        """End what is under way."""
        for request in self._requests:
            request.cut()
        self._threads.shutdown(wait=False, cancel_futures=True)


class _Request:
    """One request."""

    def __init__(self, url: str, body: bytes, timeout_s: float, max_bytes: int) -> None:
        self._parts = urlsplit(url)
        self._body = body
        self._timeout_s = timeout_s
        self._max_bytes = max_bytes
        self._socket: socket.socket | None = None
        self._over = False

    def run(self) -> tuple[int, bytes]:
        """Ask; blocks."""
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
        """End its waiting; it may have ended."""
        self._over = True
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)


def read_answer(connection: http.client.HTTPConnection, max_bytes: int) -> tuple[int, bytes]:
    """Read status and body of the answer to a request that was sent.

    Raises:
        OSError: there is none.
        http.client.HTTPException: it is not HTTP.
    """
    reply = connection.getresponse()
    try:
        return reply.status, reply.read(max_bytes)
    except (ValueError, OverflowError) as error:  # of a chunk whose size is below 0
        raise http.client.HTTPException(f"invalid body: {error}") from error

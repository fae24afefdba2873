"""A call as a request to the site itself, in this process: every gate of REST stands before it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from relay.calls.operations import Operation

App = Callable[..., Awaitable[None]]
PARTS: Final = 16
"""Parts of an answer that wait for whoever takes them."""
END: Final[dict[str, Any]] = {}
"""Behind the last part."""
END_S: Final = 5.0
"""For the site to end a request that nobody waits for any more."""


class Request(NamedTuple):
    """What is asked for.

    Attributes:
        target: path and query string.
        headers: lower-case names.
    """

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes = b""


class Head(NamedTuple):
    """The beginning of an answer."""

    status: int
    headers: dict[str, str]


def request_of(
    operation: Operation, params: Mapping[str, Any], headers: Mapping[str, str]
) -> Request:
    """The request that a call stands for.

    Raises:
        ValueError: a parameter is wrong.
    """
    body = operation.content_of(params)
    more = {"content-type": operation.body, "content-length": str(len(body))} if body else {}
    return Request(operation.method, operation.target(params), {**headers, **more}, body)


@contextlib.asynccontextmanager
async def answer(
    site: App, connection: Mapping[str, Any], request: Request
) -> AsyncIterator[tuple[Head, AsyncIterator[bytes]]]:
    """Ask the site; its answer's head and parts, which the block may leave early.

    Args:
        site: ASGI application.
        connection: scope of the websocket: its client, server and scheme are the request's.
        request: to be answered.
    """
    parts: asyncio.Queue[Any] = asyncio.Queue(PARTS)
    gone = asyncio.Event()
    asked = False

    async def receive() -> dict[str, Any]:
        nonlocal asked
        if not asked:
            asked = True
            return {"type": "http.request", "body": request.body, "more_body": False}
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        if not gone.is_set():
            await parts.put(message)

    async def run() -> None:
        try:
            await site(_scope(connection, request), receive, send)
        finally:
            await send(END)

    running = asyncio.create_task(run())
    try:
        begun = await parts.get()
        if begun is END:
            await running  # which failed
            raise RuntimeError("the site gave no answer")
        names = {name.decode("latin-1"): text.decode("latin-1") for name, text in begun["headers"]}
        head = Head(begun["status"], {name.lower(): text for name, text in names.items()})
        yield head, _parts(parts)
    finally:
        gone.set()
        while not parts.empty():  # who waits to put a part goes on
            parts.get_nowait()
        try:
            async with asyncio.timeout(END_S):
                await asyncio.wait({running})
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def _parts(parts: asyncio.Queue[Any]) -> AsyncIterator[bytes]:
    while (message := await parts.get()) is not END:
        if message.get("body"):
            yield message["body"]


def _scope(connection: Mapping[str, Any], request: Request) -> dict[str, Any]:
    path, _, query = request.target.partition("?")
    headers = [(name.encode(), text.encode("latin-1")) for name, text in request.headers.items()]
    headers += [pair for pair in connection["headers"] if pair[0] in (b"host", b"user-agent")]
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": "https" if connection.get("scheme") == "wss" else "http",
        "path": unquote(path),
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": headers,
        "client": connection.get("client"),
        "server": connection.get("server"),
    }

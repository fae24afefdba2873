"""Calls as HTTP requests to the site within this process, so that all checks of REST apply to them.

`request_of` turns a call into a request; `answer` passes it to the site's ASGI application.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from relay.calls.operations import Operation

App = Callable[..., Awaitable[None]]
PARTS: Final = 16
"""Maximum number of parts of an answer that wait to be read."""
END: Final[dict[str, Any]] = {}
"""Marks the end of an answer in its queue of parts."""
END_S: Final = 5.0
"""Seconds the site has to finish a request whose caller has left, before it is cancelled."""


class Request(NamedTuple):
    """An HTTP request.

    Attributes:
        target: path and query string.
        headers: values by lower-case name.
    """

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes = b""


class Head(NamedTuple):
    """Status and headers of an answer."""

    status: int
    headers: dict[str, str]


def request_of(
    operation: Operation, params: Mapping[str, Any], headers: Mapping[str, str]
) -> Request:
    """Return the HTTP request for a call.

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
    """Pass a request to the site, and yield the head of its answer and an iterator of its parts.

    The block may end before all parts are read.

    Args:
        site: ASGI application.
        connection: scope of the websocket; client, server and scheme of the request come from it.
        request: the request.
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
            await running  # raises what the site raised
            raise RuntimeError("the site gave no answer")
        names = {name.decode("latin-1"): text.decode("latin-1") for name, text in begun["headers"]}
        head = Head(begun["status"], {name.lower(): text for name, text in names.items()})
        yield head, _parts(parts)
    finally:
        gone.set()
        while not parts.empty():  # unblocks a `send` that waits for room
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

"""Bodies of requests from partner relays, read up to a bound whatever their headers announce.

Most bodies are complete in the first event and cost nothing more. Others are read with a deadline,
and their bytes count in a budget of the worker, so many slow or large bodies together take no more
memory than the budget allows. A refusal while the body is still arriving is answered at once. The
rest of the body is then discarded for a moment, because closing a connection with unread bytes
would lose the answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol

from proto.federation.answers import Answer, InboundReason, refused
from proto.rmb.reasons import MessageReason
from proto.websocket.bounds import PartialBudget

BODY_S: Final = 10.0
"""Seconds from the end of the head to the end of the body. Relays give a whole delivery 3 s."""
LINGER_S: Final = 1.0
LINGER_BYTES: Final = 4 << 20
"""Maximum number of bytes discarded after an early answer."""

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
Headers = tuple[tuple[bytes, bytes], ...]


class Client(Protocol):
    """The client that waits for the answer to a request."""

    @property
    def disconnected(self) -> bool:
        """Whether the client has disconnected."""


class Post(Client, Protocol):
    """A request that was received completely (`relay.server.small_post`)."""

    @property
    def path(self) -> bytes:
        """The path as the client wrote it."""

    @property
    def headers(self) -> Sequence[tuple[bytes, bytes]]:
        """The headers, with names in lower case."""

    @property
    def address(self) -> str:
        """The address of the client."""

    @property
    def body(self) -> bytes:
        """The whole body."""

    def answer(self, status: int, headers: Headers, body: bytes) -> None:
        """Send the answer; called once."""


class BodyError(Exception):
    """The body cannot be read.

    Attributes:
        answer: answer for the client; None if the client has disconnected.
    """

    def __init__(self, answer: Answer | None, reason: InboundReason | MessageReason) -> None:
        super().__init__(reason)
        self.answer = answer
        self.reason = reason


async def read_body(receive: Receive, announced: bytes, limit: int, budget: PartialBudget) -> bytes:
    """Read one body.

    Args:
        receive: ASGI's function.
        announced: value of the Content-Length header; empty without the header.
        limit: maximum size of the body in bytes.
        budget: budget for bodies that are incomplete.

    Raises:
        BodyError: it is too large, too slow, ended early, or there is no room for it.
    """
    # The server's parser has refused values that are not numbers.
    if announced and int(announced) > limit:
        raise BodyError(refused(MessageReason.TOO_LARGE), MessageReason.TOO_LARGE)
    held = 0
    parts: list[bytes] = []
    try:
        async with asyncio.timeout(BODY_S):
            while True:
                event = await receive()
                if event["type"] == "http.disconnect":
                    raise BodyError(None, InboundReason.BODY_ENDED)
                body: bytes = event.get("body", b"")
                if held + len(body) > limit:
                    raise BodyError(refused(MessageReason.TOO_LARGE), MessageReason.TOO_LARGE)
                if not event.get("more_body"):
                    return b"".join([*parts, body]) if parts else body
                if not budget.take(len(body)):
                    raise _refusal(InboundReason.BODIES_FULL)
                held += len(body)
                parts.append(body)
    except TimeoutError:
        raise _refusal(InboundReason.SLOW_BODY) from None
    finally:
        budget.give(held)


def _refusal(reason: InboundReason) -> BodyError:
    return BodyError(refused(reason), reason)


class AsgiClient:
    """The client of a request whose body was read."""

    def __init__(self) -> None:
        self.disconnected = False

    async def watch(self, receive: Receive) -> None:
        """Wait until the client disconnects, and record it."""
        self.disconnected = (await receive())["type"] == "http.disconnect"


async def send_answer(send: Send, status: int, headers: Headers, body: bytes) -> None:
    """Answer a request whose body was read."""
    lines = [*headers, (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": lines})
    await send({"type": "http.response.body", "body": body})


async def send_early_answer(
    receive: Receive, send: Send, status: int, headers: Headers, body: bytes
) -> None:
    """Answer a request whose body is still arriving, then close the connection."""
    lines = [*headers, (b"content-length", b"%d" % len(body)), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": status, "headers": lines})
    await send({"type": "http.response.body", "body": body, "more_body": True})
    thrown_away = 0
    try:
        async with asyncio.timeout(LINGER_S):
            while thrown_away < LINGER_BYTES:
                event = await receive()
                if event["type"] == "http.disconnect" or not event.get("more_body"):
                    break
                thrown_away += len(event.get("body", b""))
            else:
                await asyncio.sleep(LINGER_S)  # unread, but the client has time for the answer
    except TimeoutError:
        pass
    await send({"type": "http.response.body", "body": b""})

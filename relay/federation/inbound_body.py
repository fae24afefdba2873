"""The bodies of other relays' requests: read up to a bound, whatever their headers promise.

Most bodies are in the first event already and cost nothing more. The others are read with a
deadline, and their bytes are accounted for in a budget of the worker, so that many slow or large
ones together take no more memory than one message may be allowed to. A refusal while the body is
still coming is answered at once; what comes after it is thrown away for a moment, as a connection
that is closed with unread bytes would take the answer with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol

from proto.federation.answers import Answer, InboundReason, refused
from proto.rmb.reasons import MessageReason
from proto.websocket.bounds import PartialBudget

BODY_S: Final = 10.0
"""From the end of the head to the end of the body. Relays give a whole delivery 3 s."""
LINGER_S: Final = 1.0
LINGER_BYTES: Final = 4 << 20
"""What is thrown away after an early answer."""

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
Headers = tuple[tuple[bytes, bytes], ...]


class Client(Protocol):
    """Who waits for the answer to a request."""

    @property
    def disconnected(self) -> bool:
        """Whether nobody does any more."""


class Post(Client, Protocol):
    """A request that is here as a whole (`relay.server.small_post`)."""

    @property
    def path(self) -> bytes:
        """As the client wrote it."""

    @property
    def headers(self) -> Sequence[tuple[bytes, bytes]]:
        """With names in lower case."""

    @property
    def address(self) -> str:
        """Of the client."""

    @property
    def body(self) -> bytes:
        """All of it."""

    def answer(self, status: int, headers: Headers, body: bytes) -> None:
        """Answers it, once."""


class BodyError(Exception):
    """The body cannot be had.

    Attributes:
        answer: for the client; None when there is nobody to answer any more.
    """

    def __init__(self, answer: Answer | None, reason: InboundReason | MessageReason) -> None:
        super().__init__(reason)
        self.answer = answer
        self.reason = reason


async def read_body(receive: Receive, announced: bytes, limit: int, budget: PartialBudget) -> bytes:
    """Reads one body.

    Args:
        receive: of ASGI.
        announced: the Content-Length header, empty where there is none.
        limit: bytes it may have.
        budget: for bodies that are not complete.

    Raises:
        BodyError: it is too large, too slow, ended early, or there is no room for it.
    """
    # The server's parser has refused what is no number.
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
        """Find out when it goes."""
        self.disconnected = (await receive())["type"] == "http.disconnect"


async def send_answer(send: Send, status: int, headers: Headers, body: bytes) -> None:
    """Answers a request whose body was read."""
    lines = [*headers, (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": lines})
    await send({"type": "http.response.body", "body": body})


async def send_early_answer(
    receive: Receive, send: Send, status: int, headers: Headers, body: bytes
) -> None:
    """Answers a request whose body is still coming, then closes the connection."""
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

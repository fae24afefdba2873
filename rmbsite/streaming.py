"""Long answers leave while they are made, under ASGI too.

Django sends what an asynchronous iterator brings as it comes, but gathers what a plain one brings
before the first byte leaves: an export, a file. Here every plain one becomes an asynchronous one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Final

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest
from django.http.response import HttpResponseBase, StreamingHttpResponse
from django.utils.decorators import sync_only_middleware

ENOUGH_BYTES: Final = 64 * 1024
"""Gathered at once: a way to the thread that reads, and back, costs as much as making some KiB."""


@sync_only_middleware
def in_parts(
    get_response: Callable[[HttpRequest], HttpResponseBase],
) -> Callable[[HttpRequest], HttpResponseBase]:
    """Middleware, outside of all that make such answers."""

    def respond(request: HttpRequest) -> HttpResponseBase:
        answer = get_response(request)
        if (
            isinstance(request, ASGIRequest)
            and isinstance(answer, StreamingHttpResponse)
            and not answer.is_async
        ):
            # What the old iterator belongs to is closed by the answer, as before.
            answer.streaming_content = _asynchronous(iter(answer))
        return answer

    return respond


async def _asynchronous(parts: Iterator[bytes]) -> AsyncIterator[bytes]:
    while part := await sync_to_async(_some)(parts):
        yield part


def _some(parts: Iterator[bytes]) -> bytes:
    gathered = bytearray()
    for part in parts:
        gathered += part
        if len(gathered) >= ENOUGH_BYTES:
            break
    return bytes(gathered)

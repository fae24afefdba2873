"""Streaming of long answers under ASGI.

Django sends the parts of an asynchronous iterator as they come, but collects all parts of a plain
iterator, such as an export or a file, before it sends the first byte. This middleware turns every
plain iterator into an asynchronous one.
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
"""Number of bytes collected at once: switching to the reading thread and back costs as much as
producing some KiB."""


@sync_only_middleware
def in_parts(
    get_response: Callable[[HttpRequest], HttpResponseBase],
) -> Callable[[HttpRequest], HttpResponseBase]:
    """Middleware that must enclose all others that create such answers."""

    def respond(request: HttpRequest) -> HttpResponseBase:
        answer = get_response(request)
        if (
            isinstance(request, ASGIRequest)
            and isinstance(answer, StreamingHttpResponse)
            and not answer.is_async
        ):
            # The answer closes the owner of the old iterator, as before.
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

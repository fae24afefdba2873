"""Server-sent events for clients that stay connected.

    source = feed(...)                 # Callable[[str], AsyncIterator[Event]], from after an id on
    return await stream(request, "alarm.view", source, ids=re.compile("[0-9]{1,18}"))

`Last-Event-ID` names the last event that the client got; the source begins after it. A comment
every 15 s shows that the stream works. A stream ends when the client disconnects, after an hour,
within a second of the loss of the permission (`relay.access.watch`), or when the source ends, for
example because a store is unavailable. Clients then reconnect, as browsers do.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any, Final, NamedTuple

from channels.db import database_sync_to_async
from django.db import InterfaceError, OperationalError
from django.http import StreamingHttpResponse

from relay.access import matrix
from relay.access.errors import ServiceError
from relay.access.watch import LOOK_S, Watch
from relay.rest import caller
from relay.rest.bounds import HEARTBEAT_S, MAX_STREAM_S, MAX_STREAMS, MAX_STREAMS_OF_ONE
from relay.rest.problem import Refusal, refuse_field

logger = logging.getLogger(__name__)

CONTENT_TYPE: Final = "text/event-stream"
RETRY_MS: Final = 2000
"""Milliseconds that clients wait before they reconnect."""

_OUTAGES: Final = (ServiceError, OperationalError, InterfaceError)

_open: Counter[str] = Counter()


class Event(NamedTuple):
    """One event.

    Attributes:
        id: value for `Last-Event-ID`; printable ASCII.
        kind: name, one word.
        data: any JSON value.
    """

    id: str
    kind: str
    data: Any

    def encode(self) -> bytes:
        document = json.dumps(self.data, separators=(",", ":"))
        return f"id: {self.id}\nevent: {self.kind}\ndata: {document}\n\n".encode()


Source = Callable[[str], AsyncIterator[Event]]


async def stream(
    request: caller.Request,
    action: str,
    source: Source,
    *,
    ids: re.Pattern[str],
    heartbeat_s: float = HEARTBEAT_S,
    longest_s: float = MAX_STREAM_S,
) -> StreamingHttpResponse:
    """Return an answer that streams events.

    Args:
        request: request of an operation that is declared with `events=True`.
        action: action that the client must be allowed to do all the time.
        source: function that yields the events after an id, or from now on if the id is empty. It
            limits its own buffer.
        ids: pattern of its ids.

    Raises:
        Refusal: too many streams are open, or `Last-Event-ID` is invalid.
    """
    last = request.headers.get("Last-Event-ID", "")
    if last and not ids.fullmatch(last):
        raise refuse_field("header.Last-Event-ID", "is not the id of an event of this relay")
    key = request.caller.key
    if _open.total() >= MAX_STREAMS or _open[key] >= MAX_STREAMS_OF_ONE:
        raise Refusal(429, "too many streams are open", headers={"Retry-After": "5"})
    answer = StreamingHttpResponse(
        _lines(request, action, source(last), heartbeat_s, longest_s), content_type=CONTENT_TYPE
    )
    answer["Cache-Control"] = "no-store"
    answer["X-Accel-Buffering"] = "no"  # nginx would buffer events
    return answer


async def _lines(
    request: caller.Request,
    action: str,
    events: AsyncIterator[Event],
    heartbeat_s: float,
    longest_s: float,
) -> AsyncIterator[bytes]:
    key = request.caller.key
    end = time.monotonic() + longest_s
    alive_at = time.monotonic() + heartbeat_s
    watch = Watch(heartbeat_s)
    _open[key] += 1
    following: asyncio.Task[Event] | None = None
    try:
        yield f"retry: {RETRY_MS}\n\n".encode()
        while time.monotonic() < end:
            if following is None:
                following = asyncio.ensure_future(anext(events))
            await asyncio.wait({following}, timeout=min(heartbeat_s, LOOK_S))
            try:
                if await watch.due() and not await _still_may(request, action):
                    return
            except _OUTAGES as error:
                logger.warning("a stream of events ends: %s", error)
                return
            if not following.done():
                if time.monotonic() >= alive_at:
                    alive_at = time.monotonic() + heartbeat_s
                    yield b": alive\n\n"
                continue
            alive_at = time.monotonic() + heartbeat_s
            try:
                event = following.result()
            except StopAsyncIteration:
                return
            except _OUTAGES as error:
                logger.warning("a stream of events ends: %s", error)
                return
            following = None
            yield event.encode()
    finally:
        _open[key] -= 1
        if not _open[key]:
            del _open[key]
        if following is not None:
            following.cancel()
            with contextlib.suppress(asyncio.CancelledError, StopAsyncIteration, *_OUTAGES):
                await following
        close = getattr(events, "aclose", None)
        if close is not None:
            await close()


@database_sync_to_async  # type: ignore[untyped-decorator]
def _still_may(request: Any, action: str) -> bool:
    """Check whether the client may still do this: its token or account may have ended since."""
    with contextlib.suppress(Refusal):
        found = caller.identify_again(request)
        return found is not None and found.actor.may(matrix.permission_of(action))
    return False

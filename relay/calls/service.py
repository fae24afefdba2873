"""The methods that a client of operators' calls can call on one connection."""

from __future__ import annotations

import asyncio
import base64
import json
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from http import HTTPStatus
from typing import Any, Final

from peer.mux import StreamFailedError
from peer.rpc import PublicError, RpcError, RpcPeer, Service, call_metadata
from proto.rpc.errors import ErrorCode
from relay.calls import requests
from relay.calls.operations import EVENTS, HEADERS, Operation, operations

AGAIN_S: Final = 1.0
"""Seconds until a stream that the site ended is requested again."""
LAST_EVENT: Final = "end"
"""Kind of the event that ends a stream for good."""
CONFIRM_S: Final = 60.0
MAX_ANSWER_BYTES: Final = 1_000_000
"""Maximum size of one result: that of a message, less room for what surrounds the result."""
ALIASES: Final = {
    "followTrace": "stream_trace_events",
    "followAlarms": "stream_alarm_events",
    "followCounters": "stream_counters",
    "followLog": "stream_worker_log",
}
_WRONG_INPUT: Final = (400, 413, 415, 422)


class Calls:
    """The methods of one connection.

    Attributes:
        service: service to run on the connection.
        peer: the client, which is asked for confirmations.
    """

    def __init__(
        self, site: requests.App, scope: Mapping[str, Any], authorization: str, counts: Counter[str]
    ) -> None:
        """Register the methods.

        Args:
            site: ASGI application that answers the requests.
            scope: scope of the websocket.
            authorization: Authorization header of the handshake; empty if each call brings its own.
            counts: number of calls by their outcome; updated.
        """
        self.service = Service()
        self.peer: RpcPeer | None = None
        self._site = site
        self._scope = scope
        self._authorization = authorization
        self._counts = counts
        self.service.handler("describe")(self._describe)
        for operation in operations().values():
            self._serve(operation.id, operation)
        for name, wanted in ALIASES.items():
            self._serve(name, operations()[wanted])

    def _serve(self, name: str, operation: Operation) -> None:
        async def once(params: dict[str, Any]) -> Any:
            return await self._once(operation, params)

        async def parts(params: dict[str, Any]) -> AsyncIterator[Any]:
            async for part in self._parts(operation, params):
                yield part

        self.service.handler(name)(parts if operation.is_stream else once)

    async def _describe(self, params: dict[str, Any]) -> Any:
        return [each.described() for each in operations().values()]

    async def _once(self, operation: Operation, params: dict[str, Any]) -> Any:
        request = await self._request(operation, params)
        async with requests.answer(self._site, self._scope, request) as (head, parts):
            body = await _whole(parts)
        self._judge(head, body)
        return json.loads(body) if body else None

    async def _parts(self, operation: Operation, params: dict[str, Any]) -> AsyncIterator[Any]:
        request = await self._request(operation, params)
        if operation.content == EVENTS:
            async for event in self._events(operation, request):
                yield event
            return
        async with requests.answer(self._site, self._scope, request) as (head, parts):
            if head.status >= HTTPStatus.BAD_REQUEST:
                self._judge(head, await _whole(parts))
            self._counts["ok"] += 1
            is_text = operation.content.startswith("text/") or "json" in operation.content
            async for part in parts:
                yield {"text": part.decode()} if is_text else {"base64": _base64(part)}

    async def _events(
        self, operation: Operation, request: requests.Request
    ) -> AsyncIterator[dict[str, Any]]:
        """Yield server-sent events, and request the stream again when the site ends it.

        The site does so after an hour, in an outage, and when the token loses the permission.
        """
        last_id = ""
        while True:
            headers = {**request.headers, **({"last-event-id": last_id} if last_id else {})}
            again = request._replace(headers=headers)
            async with requests.answer(self._site, self._scope, again) as (head, parts):
                if head.status >= HTTPStatus.BAD_REQUEST:
                    self._judge(head, await _whole(parts))
                self._counts["ok"] += not last_id
                async for event_id, kind, data in _parsed(parts):
                    last_id = event_id
                    yield {"event": kind, **data}
                    if kind == LAST_EVENT:
                        return
            await asyncio.sleep(AGAIN_S)

    async def _request(self, operation: Operation, params: dict[str, Any]) -> requests.Request:
        """Return the HTTP request for a call, after the client has confirmed it if necessary.

        Raises:
            PublicError: a parameter is wrong, or the call was not confirmed.
        """
        metadata = call_metadata.get()
        headers = {"accept": "*/*"}
        authorization = metadata.get("authorization") or self._authorization
        if isinstance(authorization, str) and authorization:
            headers["authorization"] = authorization
        for name in HEADERS:
            if isinstance(text := metadata.get(name), str):
                headers[name.lower()] = text
        try:
            request = requests.request_of(operation, params, headers)
            for text in headers.values():
                text.encode("latin-1")
        except ValueError as error:
            self._counts["refused"] += 1
            raise PublicError(str(error), ErrorCode.INVALID_PARAMS) from None
        if operation.dangerous:
            await self._confirm(operation, params, metadata)
        return request

    async def _confirm(
        self, operation: Operation, params: dict[str, Any], metadata: Mapping[str, Any]
    ) -> None:
        """Ask the client to confirm a dangerous call.

        Raises:
            PublicError: the client did not confirm, or does not accept to be asked.
        """
        if metadata.get("confirmed") is True:
            return
        if metadata.get("confirm") is not True:
            raise PublicError(
                f"{operation.id} has to be confirmed: send the metadata confirm: true and answer "
                "the call confirm, or send confirmed: true"
            )
        assert self.peer is not None
        given = ", ".join(f"{name}={json.dumps(value)}" for name, value in params.items())
        text = f"{operation.summary}: {operation.id} {given}".rstrip()
        try:
            found = await self.peer.call("confirm", {"text": text}, timeout_s=CONFIRM_S)
        except (RpcError, StreamFailedError) as error:
            raise PublicError(f"{operation.id} was not confirmed: {error}") from None
        if not (isinstance(found, dict) and found.get("ok") is True):
            self._counts["declined"] += 1
            raise PublicError(f"{operation.id} was not confirmed")

    def _judge(self, head: requests.Head, body: bytes) -> None:
        """Count the outcome of a call, and raise an error if REST refused it.

        Raises:
            PublicError: REST refused the call; with its text, `status` and `errors`.
        """
        if head.status < HTTPStatus.BAD_REQUEST:
            self._counts["ok"] += 1
            return
        self._counts["refused"] += 1
        try:
            problem = json.loads(body)
        except ValueError:
            problem = {}
        details = {"status": head.status, "errors": problem.get("errors", [])}
        if "retry-after" in head.headers:
            details["retry_after_s"] = head.headers["retry-after"]
        code = ErrorCode.INVALID_PARAMS if head.status in _WRONG_INPUT else ErrorCode.REMOTE
        text = problem.get("detail") or f"the site answered {head.status}"
        raise PublicError(text, code, details=details)


async def _whole(parts: AsyncIterator[bytes]) -> bytes:
    """Return the complete body of an answer.

    Raises:
        PublicError: the body is too long for one message.
    """
    body = bytearray()
    async for part in parts:
        body += part
        if len(body) > MAX_ANSWER_BYTES:
            raise PublicError(
                f"the answer has more than {MAX_ANSWER_BYTES} bytes: use a smaller limit"
            )
    return bytes(body)


async def _parsed(parts: AsyncIterator[bytes]) -> AsyncIterator[tuple[str, str, dict[str, Any]]]:
    """Yield id, kind and data of server-sent events."""
    kept = b""
    async for part in parts:
        *whole, kept = (kept + part).split(b"\n\n")
        for event in whole:
            fields = dict(line.split(b": ", 1) for line in event.split(b"\n") if b": " in line)
            if b"data" in fields:
                kind, last_id = fields.get(b"event", b""), fields.get(b"id", b"")
                yield last_id.decode(), kind.decode(), _object(fields[b"data"])


def _object(data: bytes) -> dict[str, Any]:
    found = json.loads(data)
    return found if isinstance(found, dict) else {"data": found}


def _base64(part: bytes) -> str:
    return base64.b64encode(part).decode()

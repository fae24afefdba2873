"""Declaration of operations, and the checks that each request passes.

    @get(router, "/sessions", action="session.view", answer=Page[SessionOut])
    def list_sessions(request: Request, query: Query[SessionQuery]) -> Any:
        '''Sessions in the history.

        The newest first, unless ordered otherwise.'''

A request passes these steps in this order, each of which may end it with a problem:

1. identify the caller (`relay.rest.caller`), and count its requests (`relay.rest.throttle`);
2. check the action's permission, by the matrix of `relay.access`;
3. check the form: no NUL in the path, known names in the query, size and type of the body;
4. run a POST with an `Idempotency-Key` only once (`relay.rest.idempotency`);
5. ninja validates what the operation declares, runs it, and serialises the answer.

So a caller that may not use an operation learns neither of resources nor of the form of a body.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar, cast

from asgiref.sync import sync_to_async
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from ninja import Router
from ninja.decorators import decorate_view
from ninja.operation import Operation

from relay.access import matrix
from relay.access.errors import Denied, NotFound
from relay.ops import pending, storable
from relay.rest import caller, etag, idempotency, parsing, throttle
from relay.rest.bounds import MAX_BODY_BYTES
from relay.rest.problem import Refusal, refuse_field

Function = TypeVar("Function", bound=Callable[..., Any])

Open = Callable[..., HttpResponseBase | None]

JSON: Final = "application/json"
EVENT_STREAM: Final = "text/event-stream"
_DECLARED: Final = "_rest_declared"


@dataclass(frozen=True, slots=True)
class Declared:
    """Declaration of an operation.

    Attributes:
        action: key of the permission matrix; None if every signed-in caller may use it.
        open: function that answers callers without a permission, given request, caller and path; if
            it returns None, the request continues as usual.
        tagged: whether its answer has an ETag (GET), or it checks If-Match (PUT, PATCH, DELETE).
        secret: whether its answer is not stored for a repeat.
        body: media type of the body, if the operation reads it itself; empty if ninja does.
        max_bytes: maximum size of the body.
        events: whether its answer is a stream of server-sent events.
        missing: whether it answers 404 if the resource does not exist.
        conflicts: whether it answers 409 if the current state forbids it.
        content: media types of an answer that is not JSON.
        live: fields of the answer that its ETag does not cover.
    """

    action: str | None
    method: str
    open: Open | None = None
    tagged: bool = False
    secret: bool = False
    body: str = ""
    max_bytes: int = MAX_BODY_BYTES
    events: bool = False
    missing: bool = False
    conflicts: bool = False
    content: tuple[str, ...] = ()
    live: frozenset[str] = frozenset()


def declared(operation: Operation) -> Declared:
    """Return the declaration of an operation."""
    found: Declared = getattr(operation.view_func, _DECLARED)
    return found


def operation(
    router: Router,
    path: str,
    *,
    method: str,
    action: str | None,
    answer: Any,
    status: int = 200,
    open: Open | None = None,
    tagged: bool = False,
    secret: bool = False,
    body: str = "",
    max_bytes: int = MAX_BODY_BYTES,
    events: bool = False,
    missing: bool = False,
    conflicts: bool = False,
    content: tuple[str, ...] = (),
    tags: list[str] | None = None,
) -> Callable[[Function], Function]:
    """Declare an operation; see `Declared` and the functions below."""
    facts = Declared(
        action=action,
        method=method,
        open=open,
        tagged=tagged,
        secret=secret,
        body=body,
        max_bytes=max_bytes,
        events=events,
        missing=missing or "{" in path,
        conflicts=conflicts or method == "POST",
        content=(EVENT_STREAM,) if events else content,
        live=etag.live_fields(answer),
    )

    def declare(function: Function) -> Function:
        description = inspect.getdoc(function)
        if not description:
            raise TypeError(f"operation {function.__name__} has no description")
        summary, _, rest = description.partition("\n")
        setattr(function, _DECLARED, facts)
        decorate_view(partial(_guard, facts))(function)
        router.api_operation(
            [method],
            path,
            response={status: answer},
            tags=tags,
            operation_id=function.__name__,
            summary=summary.rstrip("."),
            description=rest.strip() or summary,
        )(function)
        return function

    return declare


get = partial(operation, method="GET")
post = partial(operation, method="POST")
put = partial(operation, method="PUT")
patch = partial(operation, method="PATCH")
delete = partial(operation, method="DELETE")


def _guard(facts: Declared, run: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap an operation's `run` in the steps above."""
    inner: Operation = run.__self__  # type: ignore[attr-defined]

    def gated(request: Any, **path: Any) -> HttpResponseBase:
        try:
            found = _identify(request)
            if facts.open is not None:
                answer = facts.open(request, found, **path)
                if answer is not None:
                    return answer
            _enter(request, found, inner, facts)
            act = partial(run, request, **path)
            if facts.method != "POST":
                return _leave(request, facts, act())
            answer = idempotency.once(request, request.caller.key, act, secret=facts.secret)
            return _leave(request, facts, answer)
        except Exception as error:
            return inner.api.on_exception(request, error)

    async def gated_stream(request: HttpRequest, **path: Any) -> HttpResponseBase:
        try:
            found = await sync_to_async(_identify)(request)
            await sync_to_async(_enter)(request, found, inner, facts)
            answer: HttpResponseBase = await run(request, **path)
            return answer
        except Exception as error:
            return inner.api.on_exception(request, error)

    return gated_stream if inner.is_async else gated


def _identify(request: Any) -> caller.Caller | None:
    found = caller.identify(request)
    if found is not None:
        throttle.count_request(found.key)
        request.caller = found
        request.actor = found.actor
    return found


def _enter(
    request: HttpRequest, found: caller.Caller | None, inner: Operation, facts: Declared
) -> None:
    if found is None:
        raise caller.unknown()
    if facts.action is not None:
        permission = matrix.permission_of(facts.action)
        if not found.actor.may(permission):
            raise Denied(permission)
    if not storable.is_text(request.path):
        raise NotFound("nothing has a NUL in its name")
    _check_query(request, inner)
    _check_body(request, inner, facts)


def _check_query(request: HttpRequest, inner: Operation) -> None:
    known: set[str] = set()
    for model in inner.models:
        if model.__ninja_param_source__ == "query":
            known |= set(model.__ninja_flatten_map__)
    for name in request.GET:
        if name not in known:
            raise refuse_field(f"query.{name[:80]}", "is not known here")


def _check_body(request: Any, inner: Operation, facts: Declared) -> None:
    parsed = any(model.__ninja_param_source__ == "body" for model in inner.models)
    if not parsed and not facts.body:
        return  # the operation does not read it
    length = request.META.get("CONTENT_LENGTH") or "0"
    if length.isdecimal() and int(length) > facts.max_bytes:
        raise _too_large(facts)
    wanted = facts.body or JSON
    if request.content_type != wanted:
        raise Refusal(415, f"the body must be {wanted}", headers={"Accept": wanted})
    # Read here and not by Django, which has one bound for all requests.
    body = request.read(facts.max_bytes + 1)
    if len(body) > facts.max_bytes:
        raise _too_large(facts)
    request._body = body
    if parsed:
        parsing.read_json(request)


def _too_large(facts: Declared) -> Refusal:
    return Refusal(413, f"the body is larger than {facts.max_bytes} bytes")


def _leave(request: HttpRequest, facts: Declared, answer: HttpResponseBase) -> HttpResponseBase:
    if facts.method == "GET" and facts.tagged and answer.status_code == 200:
        answer = etag.tagged(request, cast(HttpResponse, answer), facts.live)
    if facts.method != "GET" and answer.status_code < 400 and pending.waiting():
        answer.headers["Warning"] = f'199 - "{pending.TEXT}"'
    answer.headers.setdefault("Cache-Control", "no-store")
    return answer

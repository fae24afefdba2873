"""The REST API of the operator site, under `/api/v1/`: one ninja API with the routers of sub-apps.

No resource is defined here: each sub-app declares its operations in its own `api.py` (see
`relay.rest.operation`) and is listed in `ROUTERS`, or declares resources (`relay.resources`). Only
`rmbsite.urls` and the command that writes the schema import this module: relay workers do not need
ninja and pydantic, which are slow to import.
"""

from __future__ import annotations

import functools
import inspect
import json
import logging
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any, Final

from django.core.exceptions import RequestDataTooBig, ValidationError
from django.core.signals import got_request_exception
from django.db import InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.http.response import HttpResponseBase
from django.urls import URLPattern, URLResolver, path, re_path
from ninja import NinjaAPI
from ninja.errors import HttpError
from ninja.errors import ValidationError as FormError
from redis.exceptions import RedisError

from relay.access import errors
from relay.ops.control import ControlError
from relay.rest import openapi
from relay.rest.parsing import CleanParser
from relay.rest.problem import FieldProblem, Refusal, problem

logger = logging.getLogger(__name__)

PREFIX: Final = "/api/v1/"
VERSION: Final = "1.0.0"
RETRY_AFTER_S: Final = 5

ROUTERS: Final = (
    "relay.alarms.api",
    "relay.resources.rest",
    "relay.sessions.api",
    "relay.mux.api",
    "relay.queues.api",
    "relay.twins.api",
    "relay.limits.api",
    "relay.federation.api",
    "relay.federation.letters_api",
    "relay.access.api",
    "relay.access.accounts_api",
    "relay.audit.api",
    "relay.ops.api",
    "relay.ops.settings_api",
    "relay.twins.chain_api",
    "relay.trace.api",
    "relay.history.api",
    "relay.analytics.api",
    "relay.analytics.results_api",
)


class RestApi(NinjaAPI):
    """ninja API that answers with problems, and whose schema is complete."""

    def get_openapi_schema(self, **options: Any) -> Any:
        return openapi.complete(super().get_openapi_schema(**options), self)

    def _get_urls(self) -> list[URLResolver | URLPattern]:
        patterns = [path("openapi.json", self._document, name="openapi"), *self._operations()]
        for pattern in patterns:
            if isinstance(pattern, URLPattern):
                pattern.callback = _shelled(pattern.callback)
        return [*patterns, re_path(r"", _nothing_here)]

    def _operations(self) -> list[URLResolver | URLPattern]:
        *patterns, _root = super()._get_urls()  # the root is only for ninja itself
        return patterns

    @functools.cached_property
    def document(self) -> bytes:
        """The OpenAPI document as it is served, written to a file and compared."""
        schema = self.get_openapi_schema(path_prefix=PREFIX)
        return (json.dumps(schema, indent=2, ensure_ascii=False) + "\n").encode()

    def _document(self, request: HttpRequest) -> HttpResponse:
        if request.method != "GET":
            return HttpResponseNotAllowed(["GET"])
        return HttpResponse(self.document, content_type="application/json")


def _shelled(view: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a view so that it answers HEAD like GET, and refuses other methods with a problem."""

    def finish(answer: HttpResponseBase) -> HttpResponseBase:
        if answer.status_code != 405:
            return answer
        allowed = answer["Allow"]
        if "GET" in allowed and "HEAD" not in allowed:
            allowed += ", HEAD"
        return problem(405, f"allowed here: {allowed}", headers={"Allow": allowed})

    def enter(request: HttpRequest) -> None:
        if request.method == "HEAD":
            request.method = "GET"  # the server omits the body

    if inspect.iscoroutinefunction(view):

        async def shelled_async(request: HttpRequest, **values: Any) -> HttpResponseBase:
            enter(request)
            return finish(await view(request, **values))

        shelled_async.csrf_exempt = True  # type: ignore[attr-defined]
        return shelled_async

    def shelled(request: HttpRequest, **values: Any) -> HttpResponseBase:
        enter(request)
        return finish(view(request, **values))

    shelled.csrf_exempt = True  # type: ignore[attr-defined]
    return shelled


def _nothing_here(request: HttpRequest) -> HttpResponse:
    return problem(404, "there is nothing at this address")


_nothing_here.csrf_exempt = True  # type: ignore[attr-defined]


def _refused(request: HttpRequest, error: Refusal) -> HttpResponse:
    return error.answer()


def _of_form(request: HttpRequest, error: FormError) -> HttpResponse:
    """Answer with the fields that ninja found invalid."""
    fields = [FieldProblem(_field(each["loc"]), _message(each)) for each in error.errors]
    detail = "; ".join(f"{each.field}: {each.message}" for each in fields[:3])
    return problem(422, detail, errors=fields)


def _field(location: tuple[Any, ...]) -> str:
    """Return the name of a field: `count` in the body, `query.limit` elsewhere. ninja's name for
    the body, which is the name of a parameter of ours, is dropped.
    """
    source, *names = map(str, location)
    if source == "body":
        return ".".join(names[1:]) or "body"
    return ".".join([source, names[-1]])


def _message(found: dict[str, Any]) -> str:
    return str(found["msg"]).removeprefix("Value error, ")


def _of_ninja(request: HttpRequest, error: HttpError) -> HttpResponse:
    return problem(error.status_code, str(error))


def _missing(request: HttpRequest, error: Exception) -> HttpResponse:
    return problem(404, str(error) or "there is nothing at this address")


def _denied(request: HttpRequest, error: errors.Denied) -> HttpResponse:
    return problem(403, error.detail)


def _invalid(request: HttpRequest, error: errors.Invalid) -> HttpResponse:
    """Answer with the fields that a service found invalid: in the path, in the query of a GET, or
    in the body of other methods.
    """
    match = request.resolver_match
    in_path = match.kwargs if match else {}
    elsewhere = "query." if request.method == "GET" else ""
    fields = [
        FieldProblem(f"{'path.' if name in in_path else elsewhere}{name}", text)
        for name, text in error.fields.items()
    ]
    # A cursor is opaque: a client that sends an invalid one did not get it from this API.
    status = 400 if elsewhere and set(error.fields) == {"cursor"} else 422
    return problem(status, error.detail, errors=fields)


def _of_model(request: HttpRequest, error: ValidationError) -> HttpResponse:
    return _invalid(request, errors.Invalid.of_validation(error))


def _conflict(request: HttpRequest, error: errors.Conflict) -> HttpResponse:
    return problem(409, error.detail)


def _away(request: HttpRequest, error: Exception) -> HttpResponse:
    logger.warning("a request is answered with 503: %s", error)
    detail = str(error) if isinstance(error, (errors.Away, ControlError)) else _who(error)
    return problem(503, detail, headers={"Retry-After": str(RETRY_AFTER_S)})


def _who(error: Exception) -> str:
    who = "Redis" if isinstance(error, RedisError) else "the database"
    return f"{who} does not answer"


def _too_large(request: HttpRequest, error: Exception) -> HttpResponse:
    return problem(413, "the body is too large")


def _broken(request: HttpRequest, error: Exception) -> HttpResponse:
    """Log an unexpected error, a bug of ours, without showing it to the client."""
    logger.error("%s %s failed", request.method, request.path, exc_info=error)
    got_request_exception.send(sender=None, request=request)
    return problem(500, "the request failed; the log of the site tells why")


def build(modules: Iterable[str] = ROUTERS, namespace: str = "rest") -> RestApi:
    """Create the API with the routers of some modules."""
    api = RestApi(
        title="RMB relay",
        version=VERSION,
        description=openapi.DESCRIPTION,
        openapi_url=None,
        docs_url=None,
        urls_namespace=namespace,
        parser=CleanParser(),
    )
    handlers: list[tuple[type[Exception], Callable[[HttpRequest, Any], HttpResponse]]] = [
        (Exception, _broken),
        (Refusal, _refused),
        (FormError, _of_form),
        (HttpError, _of_ninja),
        (Http404, _missing),
        (errors.Denied, _denied),
        (errors.NotFound, _missing),
        (errors.Invalid, _invalid),
        (errors.Conflict, _conflict),
        (errors.Away, _away),
        (ControlError, _away),
        (RedisError, _away),
        (OperationalError, _away),
        (InterfaceError, _away),
        (ValidationError, _of_model),
        (RequestDataTooBig, _too_large),
    ]
    for kind, handler in handlers:
        api.add_exception_handler(kind, handler)
    for name in modules:
        api.add_router("", import_module(name).router)
    return api


api = build()

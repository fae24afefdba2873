"""What no address and no cookie of ours holds: NUL, which PostgreSQL refuses to be asked for.

REST and the console refuse it in a query themselves, by the name of the field.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from django.http import Http404, HttpRequest
from django.http.response import HttpResponseBase
from django.utils.decorators import sync_only_middleware

API: Final = "/api/"
"""Refuses in a form of its own (`relay.rest.operation`)."""
FOREIGN: Final = "/admin/"
"""Django's pages ask the database for whatever stands in the query."""


@sync_only_middleware
def without_nul(
    get_response: Callable[[HttpRequest], HttpResponseBase],
) -> Callable[[HttpRequest], HttpResponseBase]:
    """Middleware, before all that looks something up."""

    def respond(request: HttpRequest) -> HttpResponseBase:
        request.COOKIES = {
            name: value for name, value in request.COOKIES.items() if "\0" not in value
        }
        named = [request.path] if not request.path.startswith(API) else []
        if request.path.startswith(FOREIGN):
            named += [each for _, values in request.GET.lists() for each in values]
        if any("\0" in each for each in named):
            raise Http404("nothing has a NUL in its name")
        return get_response(request)

    return respond

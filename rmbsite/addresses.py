"""Rejection of NUL characters in URLs and cookies, which PostgreSQL does not accept in queries.

None of this site's URLs and cookies contain NUL. REST and the console reject it in query strings
themselves, with the name of the field.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from django.http import Http404, HttpRequest
from django.http.response import HttpResponseBase
from django.utils.decorators import sync_only_middleware

API: Final = "/api/"
"""Paths that reject it in a form of their own (`relay.rest.operation`)."""
FOREIGN: Final = "/admin/"
"""Paths of Django's pages, which query the database for any value in the query string."""


@sync_only_middleware
def without_nul(
    get_response: Callable[[HttpRequest], HttpResponseBase],
) -> Callable[[HttpRequest], HttpResponseBase]:
    """Middleware that comes before everything that looks something up."""

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

"""The base of all pages of the console: permissions, the common frame, and error pages.

    @page("queue.view")
    def queues(request): ...

Views call only services and listings; `page` turns their errors into an error page.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Final

from django.contrib import admin
from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.template.response import TemplateResponse
from django.urls import reverse

from relay.access import faces, matrix
from relay.access.errors import Away, Denied, Invalid, NotFound, ServiceError

View = Callable[..., HttpResponseBase]

_STATUS: Final = {Denied: 403, NotFound: 404, Invalid: 422, Away: 503}
_TITLES: Final = {
    403: "Not for this account",
    404: "Not found",
    409: "Not possible now",
    422: "Invalid request",
    503: "No answer",
}


def page(action: str = "") -> Callable[[View], View]:
    """Decorate a view for accounts that may do an action of `relay.access.matrix`.

    Without an action, the view is for all accounts. Clients that are not signed in are redirected
    to the sign-in; other accounts get a page that names the missing permission.
    """
    permission = matrix.permission_of(action) if action else ""

    def decorate(view: View) -> View:
        @functools.wraps(view)
        def respond(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            if not admin.site.has_permission(request):
                return redirect_to_login(request.get_full_path(), reverse("admin:login"))
            try:
                if permission:
                    faces.operator(request).require(permission)
                return view(request, *args, **kwargs)
            except ServiceError as error:
                return refuse(request, error)

        respond.action = action  # type: ignore[attr-defined]
        return respond

    return decorate


def render(
    request: HttpRequest,
    template: str,
    title: str,
    context: Mapping[str, Any] | None = None,
    *,
    status: int = 200,
) -> TemplateResponse:
    """Return a page in the frame of the theme.

    Args:
        template: template that extends `relay_dashboard/frame.html`.
        title: title of the page, in its head and in the browser's tab.
    """
    shown = {**admin.site.each_context(request), "title": title, **(context or {})}
    return TemplateResponse(request, template, shown, status=status)


def refuse(request: HttpRequest, error: ServiceError) -> HttpResponseBase:
    """Return the error page for an error of a service."""
    status = next((code for kind, code in _STATUS.items() if isinstance(error, kind)), 409)
    context = {"detail": error.detail, "status": status, "again": request.get_full_path()}
    return render(request, "relay_dashboard/refused.html", _TITLES[status], context, status=status)


def may(request: HttpRequest, action: str) -> bool:
    """Check whether the account of a request may also do another action."""
    return faces.operator(request).may(matrix.permission_of(action))

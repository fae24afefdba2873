"""What every page of the console is: for whom, in which frame, and what it says when it cannot.

    @page("queue.view")
    def queues(request): ...

Views ask services and listings only; what those refuse becomes a page of its own here.
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
    """A view for accounts that may do an action of `relay.access.matrix`; for all without one.

    Others are led to the sign-in, or told which permission is missing.
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
    """A page in the frame of the theme.

    Args:
        template: extends `relay_dashboard/frame.html`.
        title: what the page is called, in its head and in the tab.
    """
    shown = {**admin.site.each_context(request), "title": title, **(context or {})}
    return TemplateResponse(request, template, shown, status=status)


def refuse(request: HttpRequest, error: ServiceError) -> HttpResponseBase:
    """The page that says why there is none."""
    status = next((code for kind, code in _STATUS.items() if isinstance(error, kind)), 409)
    context = {"detail": error.detail, "status": status, "again": request.get_full_path()}
    return render(request, "relay_dashboard/refused.html", _TITLES[status], context, status=status)


def may(request: HttpRequest, action: str) -> bool:
    """Whether whoever looks may also do something."""
    return faces.operator(request).may(matrix.permission_of(action))

"""Required second factors: accounts without one can only see the page that sets it up.

`access.require_totp` names the roles that need one. Accounts that signed in by OpenID Connect are
exempt, because the provider asks for factors; so are tokens, which are for programs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from allauth.account.internal.flows.login import get_authentication_records
from allauth.mfa.utils import is_mfa_enabled
from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.urls import reverse
from django.utils.decorators import sync_only_middleware

from relay.access.matrix import Role

OPEN: Final = ("/admin/account/", "/admin/login/", "/admin/logout/", "/admin/jsi18n/")
GUARDED: Final = ("/admin/", "/console/", "/api/")
REST: Final = "/api/v1/"


@sync_only_middleware
def second_factor(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    """Return the middleware; it does nothing if no role is named."""

    def respond(request: HttpRequest) -> Any:
        if settings.RMB.access.require_totp and _lacks_it(request):
            if request.path.startswith(REST):
                return refuse("this account must set up a second factor first")
            return HttpResponseRedirect(reverse("mfa_activate_totp"))
        return get_response(request)

    return respond


def roles_of(user: Any) -> frozenset[Role]:
    """Return an account's roles, with the lower ones they include; a superuser has all roles."""
    if user.is_superuser:
        return frozenset(Role)
    held = [Role(group.name) for group in user.groups.all() if group.name in set(Role)]
    return frozenset(low for low in Role if any(role.includes(low) for role in held))


def is_guarded(request: HttpRequest) -> bool:
    """Check whether a signed-in request is for anything but the pages of signing in."""
    if request.path.startswith(OPEN) or not request.path.startswith(GUARDED):
        return False
    # The API then uses the token alone. Pages ignore this header, which any client could send.
    if request.path.startswith(REST) and "Authorization" in request.headers:
        return False
    return bool(request.user.is_authenticated)


def _lacks_it(request: HttpRequest) -> bool:
    return is_guarded(request) and lacks_second_factor(request)


def lacks_second_factor(request: HttpRequest) -> bool:
    """Check whether a signed-in account must set up a second factor before anything else."""
    user = request.user
    if not roles_of(user).intersection(settings.RMB.access.require_totp):
        return False
    records = get_authentication_records(request, user)
    return not any(record["method"] == "socialaccount" for record in records) and not (
        is_mfa_enabled(user)
    )


def refuse(detail: str) -> HttpResponse:
    """Return the API's answer to an account that must do something else first."""
    body = {"type": "about:blank", "title": "Forbidden", "status": 403, "detail": detail}
    return JsonResponse(body, status=403, content_type="application/problem+json")

"""Callers of the API: programs with an API token, or operators who are signed in on the site.

For changes, a session is accepted only with the CSRF token of the site, because a browser sends its
cookie with every request, also for pages of other sites. A token needs no CSRF token: it is in a
header, which pages of other sites cannot send.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, cast

from django.contrib.auth import get_user
from django.http import HttpRequest
from ninja.utils import check_csrf

from relay.access import actor as actors
from relay.access import tokens
from relay.access.actor import Actor, Face
from relay.access.sign_in.required import lacks_second_factor
from relay.rest import throttle
from relay.rest.bounds import MAX_TOKEN_CHARS
from relay.rest.problem import Refusal

SCHEME: Final = "bearer"
CHALLENGE: Final = {"WWW-Authenticate": 'Bearer realm="rmb relay"'}
SAFE_METHODS: Final = ("GET", "HEAD", "OPTIONS")


class Caller(NamedTuple):
    """Caller of a request.

    Attributes:
        key: unique name of the token or session; it must not be shown or stored unhashed.
    """

    actor: Actor
    key: str


class Request(HttpRequest):
    """Request that operations get: its caller is known and has the permission."""

    actor: Actor
    caller: Caller


def identify(request: HttpRequest) -> Caller | None:
    """Return the caller of a request; None if it has no credentials.

    Raises:
        Refusal: the token or CSRF token is invalid, or the address sent too many invalid tokens.
    """
    header = request.headers.get("Authorization")
    if header is not None:
        return _bearer(request, header)
    user = request.user
    if not (user.is_authenticated and user.is_active and cast(Any, user).is_staff):
        return None
    if request.method not in SAFE_METHODS and check_csrf(request):
        raise Refusal(403, "the CSRF token of the site is missing or wrong")
    key = f"session {user.pk} {request.session.session_key}"
    return Caller(actors.of_request(request, Face.REST), key)


def identify_again(request: HttpRequest) -> Caller | None:
    """Identify the caller by the present state of the database, for requests that last.

    Raises:
        Refusal: as for `identify`.
    """
    session = request.session
    request.session = type(session)(session.session_key)
    request.user = get_user(request)
    # For `identify`, a middleware has checked this.
    if "Authorization" not in request.headers and lacks_second_factor(request):
        return None
    return identify(request)


def unknown() -> Refusal:
    """Return the refusal of a request without credentials."""
    return Refusal(401, "an API token is needed: Authorization: Bearer <token>", headers=CHALLENGE)


def _bearer(request: HttpRequest, header: str) -> Caller:
    address = actors.address_of(request)
    scheme, _, text = header.partition(" ")
    text = text.strip()
    actor = None
    if scheme.lower() == SCHEME and 0 < len(text) <= MAX_TOKEN_CHARS:
        actor = tokens.authenticate(text, address)
    if actor is None:
        throttle.count_failure(address)  # only wrong tokens count: callers may share the address
        raise Refusal(401, "this token is unknown, expired or revoked", headers=CHALLENGE)
    return Caller(actor, f"token {text}")

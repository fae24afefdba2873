"""Who asks: the bearer of an API token, or an operator who is signed in on the site.

A session counts only with the CSRF token of the site, where something is to be changed: a browser
sends its cookie with every request, whoever made the page that asks. A token is a header that no
foreign page can send, and goes without.
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
    """Who asks.

    Attributes:
        key: names the token or the session among all; never shown or stored as it is.
    """

    actor: Actor
    key: str


class Request(HttpRequest):
    """What operations get: a request whose caller is known and may do this."""

    actor: Actor
    caller: Caller


def identify(request: HttpRequest) -> Caller | None:
    """Who asks; None where the request does not say.

    Raises:
        Refusal: what it says is not true.
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
    """As `identify`, by what the database says now: for requests that last.

    Raises:
        Refusal: as there.
    """
    session = request.session
    request.session = type(session)(session.session_key)
    request.user = get_user(request)
    # For the first time a middleware has asked.
    if "Authorization" not in request.headers and lacks_second_factor(request):
        return None
    return identify(request)


def unknown() -> Refusal:
    """The refusal of a request that does not say who asks."""
    return Refusal(401, "an API token is needed: Authorization: Bearer <token>", headers=CHALLENGE)


def _bearer(request: HttpRequest, header: str) -> Caller:
    address = actors.address_of(request)
    scheme, _, text = header.partition(" ")
    text = text.strip()
    actor = None
    if scheme.lower() == SCHEME and 0 < len(text) <= MAX_TOKEN_CHARS:
        actor = tokens.authenticate(text, address)
    if actor is None:
        throttle.count_failure(address)  # a good token is taken: others may share the address
        raise Refusal(401, "this token is unknown, expired or revoked", headers=CHALLENGE)
    return Caller(actor, f"token {text}")

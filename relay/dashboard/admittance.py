"""Checks whether a socket may receive live figures: when it opens, and when rights change.

The rules are those of pages: a staff account is signed in, has a second factor if one is required,
and has the permission. So sockets close when their session ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from channels.db import database_sync_to_async
from django.conf import settings
from django.contrib import admin, auth
from django.http import HttpRequest
from django.http.cookie import parse_cookie
from django.http.request import split_domain_port, validate_host

from relay.access import matrix
from relay.access.actor import Face, of_request
from relay.access.sign_in.required import lacks_second_factor
from relay.access.sign_in.use import must_replace_password

ACTION: Final = "worker.view"
"""Action of the permission matrix that live figures require."""
SIGNED_OUT: Final = 4401
NOT_ALLOWED: Final = 4403


class Verdict(NamedTuple):
    """Result of the check.

    Attributes:
        account: id of the account; 0 without one.
        close_code: code to close the socket with; 0 if it may stay open.
    """

    account: int
    close_code: int


def headers_of(scope: Mapping[str, Any], name: bytes) -> list[str]:
    """Return all values of a header."""
    found: Iterable[tuple[bytes, bytes]] = scope["headers"]
    return [value.decode("latin-1") for key, value in found if key == name]


def from_a_page_of_ours(scope: Mapping[str, Any]) -> bool:
    """Check whether the socket was opened by a page of this site.

    A page of another site could open one too, and the browser would send the operator's cookies.
    """
    hosts, origins = headers_of(scope, b"host"), headers_of(scope, b"origin")
    if len(hosts) != 1 or len(origins) != 1:
        return False
    domain, _ = split_domain_port(hosts[0])
    if not domain or not validate_host(domain, settings.ALLOWED_HOSTS):
        return False
    try:
        origin = urlsplit(origins[0]).netloc
    except ValueError:  # such as half of an IPv6 address
        return False
    return origin == hosts[0] or origins[0] in settings.CSRF_TRUSTED_ORIGINS


def session_key_of(scope: Mapping[str, Any]) -> str:
    """Return the session key from the cookies; empty without one."""
    cookies = parse_cookie("; ".join(headers_of(scope, b"cookie")))
    return str(cookies.get(settings.SESSION_COOKIE_NAME, ""))


def judge(session_key: str) -> Verdict:
    """Find the account of a session, and check its permission.

    Raises:
        django.db.Error: the database does not answer.
    """
    request = HttpRequest()
    request.session = import_module(settings.SESSION_ENGINE).SessionStore(session_key or None)
    request.user = auth.get_user(request)
    if not admin.site.has_permission(request):
        return Verdict(0, SIGNED_OUT)
    account: int = request.user.pk or 0
    permission = matrix.permission_of(ACTION)
    first = lacks_second_factor(request) or must_replace_password(request.user)
    allowed = of_request(request, Face.ADMIN).may(permission) and not first
    return Verdict(account, 0 if allowed else NOT_ALLOWED)


judge_async = database_sync_to_async(judge)
"""Asynchronous `judge`; runs one at a time, so that sockets do not use up all connections."""

"""Whether a socket may have live numbers: asked when it opens, and again when rights change.

By the same rules as the pages: somebody of the staff has signed in, has a second factor where one
is demanded, and has the permission. So a session that ended ends its sockets too.
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
"""Of the permission matrix: what live numbers are."""
SIGNED_OUT: Final = 4401
NOT_ALLOWED: Final = 4403


class Verdict(NamedTuple):
    """What was found.

    Attributes:
        account: id of the account; 0 without one.
        close_code: why the socket must end; 0: it may go on.
    """

    account: int
    close_code: int


def headers_of(scope: Mapping[str, Any], name: bytes) -> list[str]:
    """All values of a header."""
    found: Iterable[tuple[bytes, bytes]] = scope["headers"]
    return [value.decode("latin-1") for key, value in found if key == name]


def from_a_page_of_ours(scope: Mapping[str, Any]) -> bool:
    """Whether the socket was opened by a page of this site: another site's would come with the
    cookies of whoever looks at it."""
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
    """The key of the session that the cookies name; empty without one."""
    cookies = parse_cookie("; ".join(headers_of(scope, b"cookie")))
    return str(cookies.get(settings.SESSION_COOKIE_NAME, ""))


def judge(session_key: str) -> Verdict:
    """Who it is, and whether it may.

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
"""As `judge`, on an event loop; one at a time, so that sockets do not take all connections."""

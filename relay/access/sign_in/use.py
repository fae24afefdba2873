"""Records when an account was last seen, and makes it replace a password that others know.

An owner who creates an account, or sets its password, passes on a one-time password. `AccountUse`
stores its mark, which is valid for that password only: when the password is replaced, in whichever
way, the account need not replace it again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

from django.contrib.auth.models import User
from django.db import DatabaseError
from django.http import HttpRequest, HttpResponseRedirect
from django.urls import reverse
from django.utils import timezone
from django.utils.crypto import salted_hmac
from django.utils.decorators import sync_only_middleware

from relay.access.actor import address_of
from relay.access.models import AccountUse
from relay.access.sign_in.required import is_guarded, refuse

logger = logging.getLogger(__name__)

NOTED: Final = timedelta(minutes=1)
"""Least time between two updates of an account's last use."""
_CHANGE: Final = "/admin/password_change/"


@sync_only_middleware
def account_use(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    """Return the middleware."""

    def respond(request: HttpRequest) -> Any:
        if request.path.startswith(_CHANGE) or not is_guarded(request):
            return get_response(request)
        if not _is_one_time(_note(request), request.user):
            return get_response(request)
        if request.path.startswith("/api/"):
            return refuse("this account must replace its one-time password first")
        return HttpResponseRedirect(reverse("admin:password_change"))

    return respond


def demand_change(user: User) -> None:
    """Make an account replace its current password."""
    AccountUse.objects.update_or_create(account=user, defaults={"one_time": _mark(user)})


def must_replace_password(user: Any) -> bool:
    """Check whether an account has a one-time password."""
    return _is_one_time(getattr(user, "use", None), user)


def _note(request: HttpRequest) -> AccountUse | None:
    """Record that the account of a request was seen, at most once a minute."""
    user: Any = request.user
    rows, now = AccountUse.objects.filter(pk=user.pk), timezone.now()
    seen = {"last_seen": now, "last_address": address_of(request)}
    kept = rows.first()
    try:
        if kept is None:
            fresh = AccountUse(account_id=user.pk, **seen)
            AccountUse.objects.bulk_create([fresh], ignore_conflicts=True)
        elif kept.last_seen is None or kept.last_seen <= now - NOTED:
            rows.update(**seen)
    except DatabaseError as error:  # such as a full disk, when operators need the pages most
        logger.warning("the last use of %s is not stored: %s", user, error)
    return kept


def _is_one_time(kept: AccountUse | None, user: Any) -> bool:
    return kept is not None and kept.one_time != "" and kept.one_time == _mark(user)


def _mark(user: Any) -> str:
    return salted_hmac("relay.access.one_time", user.password, algorithm="sha256").hexdigest()

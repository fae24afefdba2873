"""Audit entries of sign-ins, failures, sign-outs and changes of second factors."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any, Final

from allauth.core import context
from allauth.mfa.models import Authenticator
from django.contrib.auth.models import User
from django.contrib.auth.signals import user_logged_in, user_logged_out
from django.db.models.signals import post_delete, post_save
from django.http import HttpRequest
from django.utils import timezone

from relay.access.actor import SYSTEM, Actor, Face, address_of
from relay.audit import services as audit
from relay.audit.models import AuditEntry

logger = logging.getLogger(__name__)

FAILED: Final = "account.sign_in_failed"
MAX_FAILED_PER_MINUTE: Final = 60
"""Entries of failures in a minute, over all accounts: the log is kept for ever, and clients that
are not signed in cause these entries."""
SHOWN_CHARS: Final = 3
"""Characters logged of a name without an account, which may be a password in the wrong field."""


def connect() -> None:
    """Connect to Django's own signals, which every way of signing in sends."""
    user_logged_in.connect(_signed_in, dispatch_uid="relay.access.signed_in")
    user_logged_out.connect(_signed_out, dispatch_uid="relay.access.signed_out")
    post_save.connect(_factor_added, Authenticator, dispatch_uid="relay.access.factor_added")
    post_delete.connect(_factor_removed, Authenticator, dispatch_uid="relay.access.factor_removed")


def failed(request: HttpRequest, name: str, why: str) -> None:
    """Record a failed sign-in.

    Args:
        request: request of the try.
        name: name as it was entered; cut unless such an account exists.
        why: reason, such as `password` or `code`.
    """
    shown = name
    if not User.objects.filter(username=name).exists():
        shown = f"{name[:SHOWN_CHARS]}…"
    since = timezone.now() - timedelta(minutes=1)
    recent = AuditEntry.objects.filter(action=FAILED, at__gte=since)[:MAX_FAILED_PER_MINUTE]
    if len(recent) >= MAX_FAILED_PER_MINUTE:
        logger.warning("sign-in failed for %r from %s; too many to audit", shown, _from(request))
        return
    audit.record(_actor(request, ""), FAILED, target=shown, after={"why": why})


def _signed_in(sender: Any, request: HttpRequest, user: Any, **_: Any) -> None:
    audit.record(
        _actor(request, user.get_username()), "account.sign_in", target=user.get_username()
    )


def _signed_out(sender: Any, request: HttpRequest, user: Any, **_: Any) -> None:
    if user is not None:
        name = user.get_username()
        audit.record(_actor(request, name), "account.sign_out", target=name)


def _factor_added(sender: Any, instance: Any, created: bool, raw: bool, **_: Any) -> None:
    if created and not raw:  # a restore loads the audit entry of this one as well
        _factor(instance, {"added": str(instance.type)})


def _factor_removed(sender: Any, instance: Any, **_: Any) -> None:
    _factor(instance, {"removed": str(instance.type)})


def _factor(authenticator: Any, change: dict[str, str]) -> None:
    """Record a change of a factor in its transaction; deleting an account also removes factors."""
    request = context.request
    actor = audit.acting() or SYSTEM
    if audit.acting() is None and request is not None and request.user.is_authenticated:
        actor = _actor(request, request.user.get_username())
    name = authenticator.user.get_username()
    audit.record(actor, "account.second_factor", target=name, after=change)


def _actor(request: HttpRequest, name: str) -> Actor:
    return Actor(name or "-", Face.ADMIN, address_of(request), frozenset())


def _from(request: HttpRequest) -> str:
    return address_of(request) or "an unknown address"

"""Sign-ins in the audit log: who came, who failed, who left, and with which factors."""

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
"""Entries, over all accounts: the log is kept for ever, and strangers write these."""
SHOWN_CHARS: Final = 3
"""Of a name that is no account: passwords are typed into the wrong field."""


def connect() -> None:
    """Hear Django's own signals; any way of signing in sends them."""
    user_logged_in.connect(_signed_in, dispatch_uid="relay.access.signed_in")
    user_logged_out.connect(_signed_out, dispatch_uid="relay.access.signed_out")
    post_save.connect(_factor_added, Authenticator, dispatch_uid="relay.access.factor_added")
    post_delete.connect(_factor_removed, Authenticator, dispatch_uid="relay.access.factor_removed")


def failed(request: HttpRequest, name: str, why: str) -> None:
    """Write a failure down.

    Args:
        request: of the try.
        name: as it was typed; cut unless there is such an account.
        why: such as `password` or `code`.
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
    if created and not raw:  # a restore loads the entry of this one as well
        _factor(instance, {"added": str(instance.type)})


def _factor_removed(sender: Any, instance: Any, **_: Any) -> None:
    _factor(instance, {"removed": str(instance.type)})


def _factor(authenticator: Any, change: dict[str, str]) -> None:
    """In the transaction that changes it; whoever deletes an account deletes it as well."""
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

"""Browser sessions of accounts: functions to list and end them.

Django stores sessions by their key only, so that finding those of one account takes reading all of
them. There are as many as users who signed in within `access.session_hours`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from allauth.account.internal.flows.login import AUTHENTICATION_METHODS_SESSION_KEY
from django.contrib.auth import HASH_SESSION_KEY, SESSION_KEY
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.utils import timezone

from relay.access.sign_in.adapters import ADDRESS

MAX_READ: Final = 10_000
"""Sessions that a list reads at most; ending those of an account reads all."""


class OpenSession(NamedTuple):
    """A browser that is signed in.

    Attributes:
        key: key of Django's session.
        began: time of the sign-in; None if it is unknown.
        address: address from which it signed in.
        ends: time at which it must sign in again.
        methods: methods of the sign-in, such as `password, mfa`.
    """

    key: str
    began: datetime | None
    address: str
    ends: datetime
    methods: str


def of_account(user: User) -> list[OpenSession]:
    """Return the sessions of an account, the latest first."""
    current = [user.get_session_auth_hash(), *user.get_session_auth_fallback_hash()]
    found = [
        _shown(row, data)
        for row, data in _read(MAX_READ)
        # A change of the password ends earlier sessions, but their rows stay.
        if data[SESSION_KEY] == str(user.pk) and data.get(HASH_SESSION_KEY) in current
    ]
    return sorted(found, key=lambda each: each.ends, reverse=True)


def count() -> Counter[int]:
    """Return the number of sessions of each account."""
    found = [data for _, data in _read(MAX_READ)]
    accounts = User.objects.in_bulk({int(data[SESSION_KEY]) for data in found})
    counted: Counter[int] = Counter()
    for data in found:
        user = accounts.get(int(data[SESSION_KEY]))
        if user is not None and data.get(HASH_SESSION_KEY) == user.get_session_auth_hash():
            counted[user.pk] += 1
    return counted


def end(user: User) -> int:
    """End all sessions of an account.

    Returns:
        Number of sessions ended.
    """
    keys = [row.session_key for row, data in _read() if data[SESSION_KEY] == str(user.pk)]
    for key in keys:
        Session.objects.filter(session_key=key).delete()
    return len(keys)


def _read(limit: int | None = None) -> Iterator[tuple[Session, dict[str, Any]]]:
    """Yield the sessions in which an account is signed in, with their data."""
    rows = Session.objects.filter(expire_date__gt=timezone.now()).order_by("-expire_date")
    for row in rows[:limit].iterator():
        data = row.get_decoded()
        if str(data.get(SESSION_KEY, "")).isdecimal():
            yield row, data


def _shown(row: Session, data: dict[str, Any]) -> OpenSession:
    records = data.get(AUTHENTICATION_METHODS_SESSION_KEY) or []
    moments = [float(each["at"]) for each in records if "at" in each]
    return OpenSession(
        key=row.session_key,
        began=datetime.fromtimestamp(min(moments), UTC) if moments else None,
        address=str(data.get(ADDRESS, "")),
        ends=row.expire_date,
        methods=", ".join(dict.fromkeys(str(each.get("method", "")) for each in records)),
    )

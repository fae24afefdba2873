"""Search and lists of limits and bans of twins, for operators."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from django.db.models import Q, QuerySet
from django.utils import timezone

from relay.audit import listing as audit
from relay.audit.models import AuditEntry
from relay.limits.models import TwinLimit

ORDERS: Final = {"twin": "pk", "updated": "updated"}
DECISIONS: Final = ("ban.set", "ban.lift", "limit.set", "limit.remove")
"""Actions of the audit log that change a row of `TwinLimit` or `SbdLimit`."""


def search(
    text: str = "", *, banned: bool | None = None, limited: bool | None = None
) -> QuerySet[TwinLimit]:
    """Return the rows of twins with a limit, a ban or a note.

    Args:
        text: id of a twin, or a part of a ban's reason or of the note.
        banned: only twins that are banned now, or only the others.
        limited: only twins with a limit of their own, or only the others.
    """
    rows = TwinLimit.objects.all()
    if text:
        words = Q(ban_reason__icontains=text) | Q(note__icontains=text)
        is_id = text.isascii() and text.isdecimal() and len(text) <= 10
        rows = rows.filter(words | Q(pk=int(text)) if is_id else words)
    if banned is not None:
        holds = Q(banned=True) & (Q(banned_until=None) | Q(banned_until__gt=timezone.now()))
        rows = rows.filter(holds if banned else ~holds)
    if limited is not None:
        rows = rows.filter(count__isnull=not limited)
    return rows


def of(twins: Iterable[int]) -> dict[int, TwinLimit]:
    """Return the rows of some twins, by their ids; twins without a row are missing."""
    return TwinLimit.objects.in_bulk(list(twins))


def deciders(twins: Iterable[int]) -> dict[int, AuditEntry]:
    """Return the audit entry of the last decision about each of some twins."""
    return {int(target): entry for target, entry in audit.latest(DECISIONS, twins).items()}

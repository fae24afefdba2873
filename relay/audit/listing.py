"""Reading of the audit log: search, and the formats of exports."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Generator, Iterable, Iterator
from datetime import datetime
from typing import Any, Final, cast

from django.db.models import Max, QuerySet

from relay.access.actor import name_of_token
from relay.audit.models import AuditEntry
from relay.ops import csv_text

FIELDS: Final = (
    "number", "at", "actor", "face", "address", "action", "target", "before", "after", "previous",
    "hash",
)  # fmt: skip
FORMS: Final = ("jsonl", "csv")
CHUNK: Final = 1000


def search(
    *,
    actor: str = "",
    action: str = "",
    target: str = "",
    face: str = "",
    since: datetime | None = None,
    until: datetime | None = None,
) -> QuerySet[AuditEntry]:
    """Return matching entries, the newest first.

    Args:
        actor: name of the actor, or of the account whose token acted.
        action: full name of an action, or its noun, such as `ban`.
        target: full name of the target.
        face: interface of the change.
        since: time of the earliest entry.
        until: time before which entries must have been written.
    """
    found = AuditEntry.objects.all()
    if actor:
        by_token = found.filter(actor__startswith=name_of_token(actor, ""))
        found = found.filter(actor=actor) | by_token
    if action:
        found = found.filter(action=action) | found.filter(action__startswith=f"{action}.")
    if target:
        found = found.filter(target=target)
    if face:
        found = found.filter(face=face)
    if since:
        found = found.filter(at__gte=since)
    if until:
        found = found.filter(at__lt=until)
    return found


def latest(actions: Iterable[str], targets: Iterable[object]) -> dict[str, AuditEntry]:
    """Return the last entry of any of the actions by target; targets without one are omitted."""
    about = AuditEntry.objects.filter(action__in=actions, target__in=map(str, targets))
    numbers = about.order_by().values("target").annotate(last=Max("number"))
    found = AuditEntry.objects.filter(pk__in=[each["last"] for each in numbers])
    return {entry.target: entry for entry in found}


def as_json(entry: AuditEntry) -> dict[str, Any]:
    """Return one entry in the form that all interfaces show."""
    values = {name: getattr(entry, name) for name in FIELDS}
    return {**values, "at": entry.at.isoformat()}


def streamed(
    entries: QuerySet[AuditEntry],
) -> contextlib.closing[Generator[AuditEntry, None, None]]:
    """Return a context manager for entries that are read one by one.

    It closes their cursor at its end: a cursor that an error leaves open outlives the connection,
    and causes warnings.
    """
    rows = entries.iterator(chunk_size=CHUNK)
    return contextlib.closing(cast(Generator[AuditEntry, None, None], rows))


def export(entries: Iterable[AuditEntry], form: str) -> Iterator[str]:
    """Yield entries as lines of JSON or CSV; the first line of CSV has the column names.

    Args:
        form: one of `FORMS`.
    """
    if form == "jsonl":
        for entry in entries:
            yield json.dumps(as_json(entry)) + "\n"
        return
    yield csv_text.line(FIELDS)
    for entry in entries:
        shown = as_json(entry)
        before, after = entry.before_json, entry.after_json
        yield csv_text.line({**shown, "before": before, "after": after}.values())

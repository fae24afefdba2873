"""Reading the audit log: which entries, and in which form they leave."""

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
    """Entries that fit, the newest first.

    Args:
        actor: its name, or the account of a token that acted for it.
        action: as a whole, or a noun such as `ban`.
        target: as a whole.
        face: by which it came.
        since: that time and later.
        until: before that time.
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
    """The last entry of some actions about each of some targets, by the target; none: not named."""
    about = AuditEntry.objects.filter(action__in=actions, target__in=map(str, targets))
    numbers = about.order_by().values("target").annotate(last=Max("number"))
    found = AuditEntry.objects.filter(pk__in=[each["last"] for each in numbers])
    return {entry.target: entry for entry in found}


def as_json(entry: AuditEntry) -> dict[str, Any]:
    """One entry as faces show it."""
    values = {name: getattr(entry, name) for name in FIELDS}
    return {**values, "at": entry.at.isoformat()}


def streamed(
    entries: QuerySet[AuditEntry],
) -> contextlib.closing[Generator[AuditEntry, None, None]]:
    """A context of entries that are read one by one.

    They are closed at its end: what an error leaves open outlives the connection, and complains of
    it.
    """
    rows = entries.iterator(chunk_size=CHUNK)
    return contextlib.closing(cast(Generator[AuditEntry, None, None], rows))


def export(entries: Iterable[AuditEntry], form: str) -> Iterator[str]:
    """Entries as lines of JSON or CSV; of the latter the first line has the names.

    Args:
        form: of `FORMS`.
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

"""Taking the oldest entries out of the audit log, for good, so that the rest still proves itself.

The entry that says so (`audit.prune`) is written in the transaction that deletes them, and has the
head of what is gone: its number and hash. It is part of the chain, so nobody without the secret key
can make one, and `relay.audit.chain.verify` accepts a log that begins later only behind a head that
such an entry names. Whoever cuts the beginning off himself is found as before.

The triggers that refuse it are dropped and made again in the same transaction; others wait for its
end.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Final

from django.db import connection
from django.db.models import QuerySet
from django.utils import timezone

from relay.access.actor import Actor
from relay.access.errors import Conflict, Invalid
from relay.audit import chain, listing, services, triggers
from relay.audit.chain import Head
from relay.audit.models import AuditEntry
from relay.ops import whole_file

LEAST_DAYS: Final = 30
"""Younger entries stay: who covers his tracks is in a hurry, and so is who mistypes a date."""


def prune(before: datetime, copy: Path | None, *, actor: Actor) -> Head | None:
    """Verify the log, keep a copy of its oldest entries in a file, and delete them.

    Args:
        before: entries of that time and later stay, and so do all behind the first of them.
        copy: a new file, which gets them as lines of JSON; None for no copy.
        actor: who wants it.

    Returns:
        The head of what was deleted; None where nothing is so old.

    Raises:
        Denied, Away
        Invalid: the time is too late, or the file cannot be written.
        Conflict: the log was changed; nothing was deleted.
    """
    if before > timezone.now() - timedelta(days=LEAST_DAYS):
        raise Invalid(fields={"before": f"must be {LEAST_DAYS} days ago or more"})
    try:
        services.verify()
    except chain.Broken as broken:
        raise Conflict(f"the audit log was changed, nothing is deleted: {broken}") from None
    last = _last_before(before)
    if last is None:
        return None
    going = AuditEntry.objects.filter(number__lte=last.number)
    if copy is not None:
        _write(copy, going.order_by("number"))
    with services.change(actor, chain.PRUNE, target=str(last.number)) as change:
        editor = SimpleNamespace(connection=connection)
        triggers.remove(None, editor)
        deleted = going.delete()[0]
        triggers.install(None, editor)
        change.after = {"deleted": deleted, "number": last.number, "hash": last.hash}
    return last


def _last_before(before: datetime) -> Head | None:
    """The last entry that goes. The log's own last one stays: the next is numbered by it."""
    kept = AuditEntry.objects.filter(at__gte=before).order_by("number").first()
    bound = kept.number if kept else services.head().number
    found = AuditEntry.objects.filter(number__lt=bound).order_by("-number")
    row = found.values_list("number", "hash").first()
    return Head(*row) if row else None


def _write(path: Path, entries: QuerySet[AuditEntry]) -> None:
    try:
        with (
            listing.streamed(entries) as rows,
            whole_file.written_text(path, new=True, mode=whole_file.PRIVATE) as file,
        ):
            file.writelines(listing.export(rows, "jsonl"))
    except OSError as error:
        raise Invalid(fields={"copy": f"{path}: {error.strerror}"}) from None

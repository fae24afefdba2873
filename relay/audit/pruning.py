"""Deletes the oldest entries of the audit log so that the rest can still be verified.

The entry about it (`audit.prune`) is written in the transaction that deletes them, and contains the
head of the deleted part: its number and hash. It is part of the chain, so it cannot be forged
without the secret key, and `relay.audit.chain.verify` accepts a log that begins later only behind a
head that such an entry names. Entries cut off in any other way are detected as before.

The triggers that refuse deletion are dropped and created again in the same transaction; other
writers wait for its end.
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
"""Minimum age of deleted entries, in days. It protects recent entries from attackers who cover
their tracks, and from a mistyped date."""


def prune(before: datetime, copy: Path | None, *, actor: Actor) -> Head | None:
    """Verify the log, write its oldest entries to a file, and delete them.

    Args:
        before: entries from this time on are kept, and so are all behind the first of them.
        copy: new file for the deleted entries, as lines of JSON; None for no copy.
        actor: actor of the change.

    Returns:
        The head of the deleted part; None if no entry is that old.

    Raises:
        Denied, Away
        Invalid: the time is too recent, or the file cannot be written.
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
    """Return the last entry to delete. The log's last entry is kept: it numbers the next one."""
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

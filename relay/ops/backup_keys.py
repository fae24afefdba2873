"""Checks whether the secret keys of this site can verify the audit log of a backup.

A restore checks this before it changes anything: it would append its own entry, signed with the
site's key, to entries signed with an unknown key, and then no single key could verify the log.
"""

from __future__ import annotations

import contextlib
import shlex
import zipfile
from collections.abc import Generator
from pathlib import Path

from django.conf import settings
from django.core import serializers

from relay.audit import services as audit
from relay.audit.chain import Broken
from relay.audit.models import AuditEntry
from relay.ops.backup_file import OLD_SECRETS, SECRET, BackupError, keys_of, lines

LOG = AuditEntry._meta.label_lower
ALL_THE_SAME = "--unverified-log restores all the same"


class LogError(BackupError):
    """The audit log in a backup was changed, or the site lacks the key it was signed with."""

    def __init__(self, detail: str, broken: Broken) -> None:
        super().__init__(detail)
        self.broken = broken


def doubt(path: Path, archive: zipfile.ZipFile) -> LogError | None:
    """Verify the audit log in a backup as the site would after a restore.

    Returns:
        None if the log is verified; else the error, with advice.

    Raises:
        BackupError: The file is damaged.
    """
    try:
        with contextlib.closing(_entries(archive)) as entries:
            audit.verify_entries(entries)
    except Broken as broken:
        return LogError(_advice(path, archive, broken), broken)
    return None


def _entries(archive: zipfile.ZipFile) -> Generator[AuditEntry]:
    for line in lines(archive, LOG):
        for found in serializers.deserialize("jsonl", line):
            if not isinstance(found.object, AuditEntry):
                raise BackupError(f"table {LOG} holds a row of another table")
            yield found.object


def _advice(path: Path, archive: zipfile.ZipFile, broken: Broken) -> str:
    ours = (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)
    present, before = keys_of(archive)
    told = (
        "the audit log in the backup was signed with another secret key than this site has, and "
        "could not be verified here: nothing is restored"
    )
    if present is None:
        return (
            f"{told}. The key is not in the file: set site.secret_key to that of the site that "
            f"made it, and restore again. Where it is lost, {ALL_THE_SAME}"
        )
    steps = []
    if present not in ours:
        steps.append(_step(path))
    if not set(before).issubset(ours):
        steps.append(
            "Set site.secret_key_fallbacks to what this prints:\n"
            f"  unzip -p {shlex.quote(str(path))} {OLD_SECRETS}"
        )
    if not steps:
        return f"the audit log in the backup was changed, {ALL_THE_SAME}: {broken}"
    return "\n".join([f"{told}.", *steps, "Then restore again."])


def _step(path: Path) -> str:
    """Return how to give this site the key in a backup."""
    shown = f"unzip -p {shlex.quote(str(path))} {SECRET}"
    if not settings.RMB.site.secret_key:
        kept = settings.RMB.data_dir / "secret_key"
        return f"Give the site that key:\n  {shown} > {shlex.quote(str(kept))}"
    origin = settings.RMB_ORIGINS.get("site.secret_key", "")
    return f"Set site.secret_key (now from {origin}) to what this prints:\n  {shown}"

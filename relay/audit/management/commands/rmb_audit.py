"""`manage.py rmb_audit list|verify|export|prune`: who changed what, on the command line."""

from __future__ import annotations

import argparse
import json
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError
from django.db import Error as DatabaseError
from django.utils import timezone

from relay.access import faces
from relay.access.actor import Face, of_command
from relay.audit import chain, listing, pruning, services
from relay.audit.chain import Broken, Head
from relay.audit.models import AuditEntry
from relay.ops import arguments, storable
from relay.ops.command import RelayCommand
from relay.ops.printable import shown

DESCRIPTION = """\
The audit log has an entry for every change and every sign-in: time, account, address, and the
values before and after.

  rmb_audit list --actor olga --action ban --since 24h
  rmb_audit export --since 2026-01-01 > audit.jsonl
  rmb_audit verify                        check the chain of hashes; print the first broken entry
  rmb_audit verify --head 4711:9f86d0…    also check that no entries are missing at the end
  rmb_audit prune --before 365d --copy old.jsonl    delete the oldest entries

`verify` prints the head of the log. Store the head where the owner of the database cannot change it
(a ticket, another host, a print-out), and pass it to the next `verify`. Exit code 1: the log was
changed.

`prune` verifies the log, adds an entry about the deletion, and deletes without a question. --copy
writes the deleted entries to a file, in the format of `export`; --no-copy keeps no copy.

Times: 2026-11-21, 2026-11-21T10:00 (UTC), or an age such as 90m, 24h, 7d.
"""

UNITS = {"m": 60, "h": 3600, "d": 86_400}
MAX_LISTED = 10_000


class Command(RelayCommand):
    """The command, with one sub-command for each task."""

    help = "The audit log: list, verify, export, prune."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.formatter_class = RawDescriptionHelpFormatter
        parser.description = DESCRIPTION
        verbs = parser.add_subparsers(dest="verb", required=True)
        lister = verbs.add_parser("list", help="list the newest entries")
        lister.add_argument(
            "--limit", type=_limit, default=50, help="maximum number of entries (default 50)"
        )
        lister.add_argument("--json", action="store_true", help="one JSON array")
        _add_filters(lister)
        verifier = verbs.add_parser("verify", help="check the chain of hashes")
        verifier.add_argument(
            "--head",
            type=_head,
            action="append",
            default=[],
            metavar="NUMBER:HASH",
            help="head of an earlier check; repeatable",
        )
        verifier.add_argument("--json", action="store_true", help="one JSON object")
        exporter = verbs.add_parser("export", help="print all matching entries, the oldest first")
        exporter.add_argument(
            "--form", choices=listing.FORMS, default="jsonl", help="default jsonl"
        )
        _add_filters(exporter)
        pruner = verbs.add_parser("prune", help="delete the oldest entries")
        pruner.add_argument("--before", type=_moment, required=True, help="delete older entries")
        keep = pruner.add_mutually_exclusive_group(required=True)
        keep.add_argument(
            "--copy", type=Path, metavar="FILE", help="write the deleted entries to a new file"
        )
        keep.add_argument("--no-copy", action="store_true", help="keep no copy")
        pruner.add_argument("--json", action="store_true", help="one JSON object")

    def handle(self, *args: Any, verb: str, **options: Any) -> None:
        actions = {
            "list": self._list,
            "verify": self._verify,
            "export": self._export,
            "prune": self._prune,
        }
        with faces.in_command():
            try:
                actions[verb](options)
            except DatabaseError as error:
                raise CommandError(f"database: {error}") from None

    def _list(self, options: dict[str, Any]) -> None:
        entries = _found(options)[: options["limit"]]
        if options["json"]:
            self.stdout.write(json.dumps([listing.as_json(entry) for entry in entries], indent=2))
            return
        for entry in entries:
            change = shown(f"{entry.before_json} -> {entry.after_json}")
            by = f"{shown(entry.actor)} ({entry.face} {shown(entry.address) or '-'})"
            self.stdout.write(
                f"{entry.number:>8}  {entry.at:%Y-%m-%d %H:%M:%S}  {by}  {entry.action}  "
                f"{shown(entry.target)}  {change}"
            )

    def _verify(self, options: dict[str, Any]) -> None:
        try:
            head = services.verify(options["head"])
        except Broken as error:
            if options["json"]:
                broken = {"ok": False, "broken": error.number, "error": str(error)}
                self.stdout.write(json.dumps(broken))
            raise CommandError(f"the audit log was changed: {error}") from None
        if options["json"]:
            document = {"ok": True, "entries": _count(head), "head": str(head)}
            self.stdout.write(json.dumps(document))
        else:
            self.stdout.write(f"{_count(head)} entries, nothing was changed\nhead {head}")

    def _export(self, options: dict[str, Any]) -> None:
        found = _found(options).order_by("number")
        for line in services.export(found, options["form"], actor=of_command()):
            self.stdout.write(line, ending="")

    def _prune(self, options: dict[str, Any]) -> None:
        last = pruning.prune(options["before"], options["copy"], actor=of_command())
        if options["json"]:
            self.stdout.write(json.dumps({"pruned": str(last) if last else None}))
        elif last is None:
            self.stdout.write("no entries are that old")
        else:
            self.stdout.write(f"all entries up to {last.number} are deleted\nhead {last}")


def _count(head: Head) -> int:
    return AuditEntry.objects.filter(number__lte=head.number).count()


def _add_filters(parser: ArgumentParser) -> None:
    parser.add_argument("--actor", default="", help="account (with its tokens), or system")
    parser.add_argument(
        "--action", default="", help="such as ban.set, or ban for all of its actions"
    )
    parser.add_argument("--target", default="", help="changed object, such as a twin's id")
    parser.add_argument("--face", default="", choices=[face.value for face in Face], help="origin")
    parser.add_argument("--since", type=_moment, help="entries from this time on")
    parser.add_argument("--until", type=_moment, help="entries before this time")


def _found(options: dict[str, Any]) -> Any:
    names = ("actor", "action", "target", "face", "since", "until")
    return listing.search(**{name: options[name] for name in names})


def _limit(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 0 < int(text[:9]) <= MAX_LISTED):
        raise argparse.ArgumentTypeError(f"must be 1 to {MAX_LISTED}")
    return int(text)


def _head(text: str) -> Head:
    try:
        return chain.Head.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _moment(text: str) -> datetime:
    try:
        if text[-1:] in UNITS and text[:-1].isascii() and text[:-1].isdecimal() and len(text) < 8:
            return timezone.now() - timedelta(seconds=int(text[:-1]) * UNITS[text[-1]])
        found = arguments.moment(text)
    except (ValueError, OverflowError):  # before the year 1
        found = datetime.min
    if not storable.is_within_reach(found):
        raise argparse.ArgumentTypeError(
            "must be a time such as 2026-11-21T10:00, or an age such as 24h"
        )
    return found

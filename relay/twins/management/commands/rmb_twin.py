"""`manage.py rmb_twin add|import|export|list|remove`: the registry on the command line."""

from __future__ import annotations

import contextlib
import json
import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from django.core.management.base import CommandError

from relay.access import faces
from relay.access.actor import of_command
from relay.ops import pending, whole_file
from relay.ops.command import RelayCommand
from relay.ops.printable import shown
from relay.ops.screen import amount
from relay.ops.wording import counted
from relay.sessions.rates import WINDOW_S
from relay.twins import csv_io, listing, services
from relay.twins.fields import (
    NO_RELAYS,
    FieldError,
    TwinValues,
    join_relays,
    own_relay,
    parse_id,
    parse_values,
    to_texts,
)
from relay.twins.models import Twin
from relay.twins.source import split_relays

DESCRIPTION = f"""\
Add, change, list and remove twins of the registry. Running relays use a change within a second.

  rmb_twin add 7 5GrwvaEF5zXb26Fz9rcQpDWS57CtERHpNehXCPcNoHGKutQY --relays relay.example.com
  rmb_twin import twins.csv           import all twins, or none if a line has an error
  rmb_twin export twins.csv           write all twins
  rmb_twin list --relay a.example     list twins of a relay; also --text, --source, --stale
  rmb_twin list --order=-rate_in      list the twins that send most messages per second, with rates

A CSV file has a header and one line for each twin:

    id,account,pk,relays
    7,5GrwvaEF5zXb26Fz9rcQpDWS57CtERHpNehXCPcNoHGKutQY,,relay.example.com_other.example.com

account: ss58, or 0x and 64 hexadecimal digits. pk: 0x and 66 hexadecimal digits, or empty. relays:
host names joined by an underscore, or empty. Twins of the chain can only be changed on the chain.
Rates are messages per second, over the last {WINDOW_S} s.
"""

STANDARD = "-"
ORDERS = [f"{sign}{name}" for name in (*listing.ORDERS, *listing.RATES) for sign in ("", "-")]


class Command(RelayCommand):
    """Command with one method for each sub-command; workers see a change within a second."""

    help = "Twins of the registry: add, import, export, list, remove."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.formatter_class = RawDescriptionHelpFormatter
        parser.description = DESCRIPTION
        verbs = parser.add_subparsers(dest="verb", required=True)

        add = verbs.add_parser("add", help="add one twin or change it")
        add.add_argument("id", help="twin id")
        add.add_argument("account", help="ss58 address or 0x hex of 32 bytes")
        add.add_argument("--pk", default="", help="encryption key, 0x hex of 33 bytes")
        add.add_argument(
            "--relays",
            help="relays, joined by an underscore (default: the first of relay.domains); '': none",
        )
        add.add_argument("--json", action="store_true", help="one JSON object")

        reader = verbs.add_parser("import", help="add and change twins from a CSV file")
        reader.add_argument(
            "file", help="CSV file with the header id,account,pk,relays; -: standard input"
        )
        reader.add_argument(
            "--keep-going",
            action="store_true",
            help="import the valid lines even if others have errors",
        )
        reader.add_argument("--json", action="store_true", help="one JSON object")

        writer = verbs.add_parser("export", help="write all twins to a CSV file")
        writer.add_argument("file", nargs="?", default=STANDARD, help="default: standard output")

        lister = verbs.add_parser("list", help="list twins")
        lister.add_argument("ids", nargs="*", help="only these twins")
        lister.add_argument("--text", default="", help="account, or a part of a relay's name")
        lister.add_argument("--relay", default="", help="only twins that list this relay")
        lister.add_argument(
            "--source", choices=Twin.Source.values, default="", help="only this origin"
        )
        lister.add_argument(
            "--stale", choices=("true", "false"), help="only twins that may (not) be outdated"
        )
        lister.add_argument(
            "--order", choices=ORDERS, default="id", help="with - in descending order"
        )
        lister.add_argument(
            "--limit", type=int, default=50, help="maximum number of rows (default 50)"
        )
        lister.add_argument("--json", action="store_true", help="one JSON array")

        remove = verbs.add_parser("remove", help="remove twins")
        remove.add_argument("ids", nargs="+", help="twin ids")
        remove.add_argument("--json", action="store_true", help="one JSON object")

    def handle(self, *args: Any, verb: str, **options: Any) -> None:
        actions = {
            "add": self._add,
            "import": self._import,
            "export": self._export,
            "list": self._list,
            "remove": self._remove,
        }
        with faces.in_command():
            try:
                actions[verb](options)
            except FieldError as error:
                raise CommandError(str(error)) from None

    def _add(self, options: dict[str, Any]) -> None:
        relays = options["relays"]
        if relays is None:
            relays = join_relays(own_relay())
        values = parse_values(options["id"], options["account"], options["pk"], relays)
        added = services.put_twin(values, actor=of_command())
        told = f"twin {values.id} {'added' if added else 'changed'}"
        if not values.relays:
            self.stderr.write(f"twin {values.id}: {NO_RELAYS}; name its relays with --relays")
        self._done({"id": values.id, "added": added}, told, options)

    def _import(self, options: dict[str, Any]) -> None:
        with _read(options["file"]) as file:
            try:
                report = csv_io.import_twins(
                    file,
                    actor=of_command(),
                    keep_going=options["keep_going"],
                    progress=self._progress,
                )
            except csv_io.ImportRefusedError as error:
                self._show_errors(error.report)
                raise CommandError(str(error)) from None
        self._show_errors(report)
        self._done(
            {**asdict(report), "errors": [error._asdict() for error in report.errors]},
            f"{report.rows} rows read: {report.added} twins added, {report.changed} changed, "
            f"{report.error_count} lines skipped",
            options,
        )

    def _export(self, options: dict[str, Any]) -> None:
        with _written(options["file"]) as file:
            count = csv_io.export_twins(file)
        self.stderr.write(f"{counted(count, 'twin')} written")

    def _list(self, options: dict[str, Any]) -> None:
        twins = listing.search(
            options["text"],
            relay=options["relay"],
            source=options["source"],
            stale=None if options["stale"] is None else options["stale"] == "true",
        )
        if options["ids"]:
            twins = twins.filter(pk__in=[parse_id(text) for text in options["ids"]])
        order, limit = options["order"], options["limit"]
        if order.removeprefix("-") in listing.RATES:
            found = listing.page(twins, order=order, limit=limit).items
        else:
            found = [listing.Listed(twin, None) for twin in twins.order_by(order)[: max(0, limit)]]
        if options["json"]:
            self.stdout.write(json.dumps([_document(each) for each in found], indent=2))
            return
        for each in found:
            twin, account, pk, relays = _texts(each.row)
            rates = "".join(f"{amount(rate):>5}/s  " for rate in each.flow or ())
            self.stdout.write(
                f"{twin:>10}  {rates}{account:<48}  {pk or '-':<68}  {shown(relays) or '-'}"
            )
        self.stderr.write(f"{len(found)} of {twins.count()} twins shown")

    def _remove(self, options: dict[str, Any]) -> None:
        ids = [parse_id(text) for text in options["ids"]]
        unknown = set(ids) - set(Twin.objects.filter(pk__in=ids).values_list("pk", flat=True))
        if unknown:
            named = ", ".join(map(str, sorted(unknown)))
            raise CommandError(f"no such twins: {named}; nothing was removed")
        removed = services.remove_twins(ids, actor=of_command())
        self._done({"removed": removed}, f"{counted(removed, 'twin')} removed", options)

    def _done(self, document: dict[str, Any], told: str, options: dict[str, Any]) -> None:
        self.stdout.write(json.dumps(document, indent=2) if options["json"] else told)
        if pending.waiting():
            self.stderr.write(pending.TEXT)  # twins are often added before the first start

    def _progress(self, rows: int) -> None:
        self.stderr.write(f"{rows} rows read")

    def _show_errors(self, report: csv_io.ImportReport) -> None:
        for error in report.errors:
            self.stderr.write(shown(str(error)))
        unseen = report.error_count - len(report.errors)
        if unseen:
            self.stderr.write(f"… and {unseen} more")


@contextlib.contextmanager
def _read(name: str) -> Iterator[TextIO]:
    if name == STANDARD:
        yield sys.stdin
        return
    try:
        # Bytes that are not UTF-8 are reported with their line, as an error of their field.
        file = open(name, encoding="utf-8-sig", errors="surrogateescape", newline="")  # noqa: SIM115
    except OSError as error:
        raise CommandError(f"{name}: {error.strerror}") from None
    with file:
        yield file


@contextlib.contextmanager
def _written(name: str) -> Iterator[TextIO]:
    if name == STANDARD:
        yield sys.stdout
        return
    try:
        with whole_file.written_text(Path(name)) as file:
            yield file
    except OSError as error:
        raise CommandError(f"{name}: {error.strerror}") from None


def _document(found: listing.Listed) -> dict[str, Any]:
    named = dict[str, Any](zip(csv_io.HEADER, _texts(found.row), strict=True))
    return named | (found.flow._asdict() if found.flow else {})


def _texts(twin: Twin) -> tuple[str, str, str, str]:
    record = twin.record()
    return to_texts(TwinValues(*record[:3], split_relays(twin.relays)))

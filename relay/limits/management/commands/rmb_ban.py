"""`manage.py rmb_ban list|set|lift`: twins, addresses and keys of SBD that are kept out."""

from __future__ import annotations

import json
import re
from argparse import ArgumentParser, ArgumentTypeError, RawDescriptionHelpFormatter
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final

from django.core.management.base import CommandError
from django.core.serializers.json import DjangoJSONEncoder
from django.utils import timezone

from proto.sbd.frames import accept_as_argument
from relay.access import actor, faces
from relay.limits import addresses, listing, sbd, services
from relay.limits.models import AddressBan, SbdLimit, TwinLimit
from relay.ops.command import RelayCommand
from relay.ops.printable import shown
from relay.twins import listing as twins
from relay.twins.fields import FieldError, parse_id

DESCRIPTION = """\
Ban twins, addresses and SBD keys. A ban takes effect within a second.

  twin       The relay closes its sessions, refuses new ones, and answers requests to the twin with
             "twin is banned". Messages in its queues stay until they expire; rmb_queue purge
             deletes them.
  address    The relay closes its sessions and answers every request from it with 403. It may be a
             single address, or a network in CIDR notation not larger than /8 (IPv6: /16).
  SBD key    The relay closes its connection and answers its handshakes with 403.

  list [--addresses | --keys]                    list banned twins, addresses or SBD keys
  set TARGET [--reason TEXT] [--for 30m|12h|7d]  ban a twin or an address (default: without end)
  lift TARGET                                    end a ban
  set --key=KEY ..., lift --key=KEY              the same for an SBD key

The command refuses a twin that this relay does not know, because its id may be misspelt; --unknown
bans it. The command also refuses loopback addresses; --force bans them.

  rmb_ban set 7 --reason "floods twin 12" --for 24h
  rmb_ban set 192.0.2.0/24
  rmb_ban set --key=E5dfMZ7JHWqOiZn5DwHZUyJlMzFz9KY4uYf-Sb8zOgE --reason flood

exit code: 0 done, 1 refused or failed, 2 usage, 3 saved and pending until Redis is back
"""

_UNITS: Final = {"m": 60, "h": 3600, "d": 86_400}
MAX_DAYS: Final = 3650
LISTED: Final = 50


class Command(RelayCommand):
    """Command with one method for each sub-command."""

    help = "Bans of twins, addresses and SBD keys: list, set, lift."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.formatter_class = RawDescriptionHelpFormatter
        parser.description = DESCRIPTION
        verbs = parser.add_subparsers(dest="verb", required=True)
        lister = verbs.add_parser("list", help="list banned twins, addresses or SBD keys")
        kinds = lister.add_mutually_exclusive_group()
        kinds.add_argument("--addresses", action="store_true", help="list banned addresses")
        kinds.add_argument("--keys", action="store_true", help="list banned SBD keys")
        lister.add_argument(
            "--limit", type=int, default=LISTED, help=f"maximum number of rows (default {LISTED})"
        )
        lister.add_argument("--json", action="store_true", help="one JSON array")
        ban = verbs.add_parser("set", help="ban a twin, an address or an SBD key, or change a ban")
        ban.add_argument("--reason", default="", help="text that operators see")
        ban.add_argument(
            "--for", dest="time", type=_time, help="duration of the ban, such as 30m, 12h, 7d"
        )
        ban.add_argument(
            "--unknown", action="store_true", help="also ban a twin that this relay does not know"
        )
        ban.add_argument("--force", action="store_true", help="also ban a loopback address")
        lift = verbs.add_parser("lift", help="end a ban")
        for changer in (ban, lift):
            accept_as_argument(changer)
            target = changer.add_mutually_exclusive_group(required=True)
            target.add_argument("target", nargs="?", help="twin id, address or network")
            target.add_argument("--key", help="public key of an SBD client")
            changer.add_argument("--json", action="store_true", help="one JSON object")

    def handle(self, *args: Any, verb: str, **options: Any) -> None:
        try:
            with faces.in_command():
                if verb == "list":
                    self._list(options)
                elif options["key"] is not None:
                    self._decide_key(verb, options["key"], options)
                elif any(sign in options["target"] for sign in ".:"):
                    self._decide_address(verb, options["target"], options)
                else:
                    self._decide(verb, parse_id(options["target"]), options)
        except FieldError as error:
            raise CommandError(str(error)) from None

    def _decide(self, verb: str, twin: int, options: dict[str, Any]) -> None:
        if verb == "lift":
            row = TwinLimit.objects.filter(twin=twin, banned=True).first()
            if row is None:
                raise CommandError(f"twin {twin} is not banned")
            services.lift_ban(twin, actor=actor.of_command())
            told = f"twin {twin} is not banned any more"
        else:
            if not options["unknown"]:
                twins.require_known(twin)
            until = timezone.now() + options["time"] if options["time"] else None
            services.ban(twin, options["reason"], until, actor=actor.of_command())
            told = f"twin {twin} is banned{_until(until)}"
        self._decided(_document(TwinLimit.objects.get(twin=twin)), told, options)

    def _decide_address(self, verb: str, text: str, options: dict[str, Any]) -> None:
        who = actor.of_command()
        if verb == "lift":
            network = addresses.lift(text, actor=who)
            document = {"network": network, "banned": False}
            told = f"{network} is not banned any more"
        else:
            until = timezone.now() + options["time"] if options["time"] else None
            row = addresses.ban(text, options["reason"], until, actor=who, force=options["force"])
            document, told = _address_document(row), f"{row.network} is banned{_until(until)}"
        self._decided(document, told, options)

    def _decide_key(self, verb: str, text: str, options: dict[str, Any]) -> None:
        who = actor.of_command()
        if verb == "lift":
            key = sbd.lift_ban(text, actor=who)
            document, told = {"key": key, "banned": False}, f"key {key} is not banned any more"
        else:
            until = timezone.now() + options["time"] if options["time"] else None
            row = sbd.ban(text, options["reason"], until, actor=who)
            document, told = _key_document(row), f"key {row.subject} is banned{_until(until)}"
        self._decided(document, told, options)

    def _decided(self, document: dict[str, Any], told: str, options: dict[str, Any]) -> None:
        if options["json"]:
            self._write_json(document)
        self.require_in_force()
        if not options["json"]:
            self.stdout.write(told)

    def _list(self, options: dict[str, Any]) -> None:
        found: Any
        document: Callable[[Any], dict[str, Any]]
        if options["addresses"]:
            found, document, what = addresses.search(), _address_document, "addresses"
        elif options["keys"]:
            found, document, what = sbd.search(banned=True), _key_document, "keys"
        else:
            found, document, what = listing.search(banned=True), _document, "twins"
        rows = list(found[: max(0, options["limit"])])
        if options["json"]:
            self._write_json([document(row) for row in rows])
            return
        for row in rows:
            self.stdout.write(_line(row))
        self.stderr.write(f"{len(rows)} of {found.count()} banned {what} shown")

    def _write_json(self, document: Any) -> None:
        self.stdout.write(json.dumps(document, indent=2, cls=DjangoJSONEncoder))


def _line(row: TwinLimit | AddressBan | SbdLimit) -> str:
    if isinstance(row, AddressBan):
        return f"{row.network:<18}  {shown(row.reason) or '-'}{_until(row.until)}"
    name = f"{row.twin:>10}" if isinstance(row, TwinLimit) else row.subject
    return f"{name}  {shown(row.ban_reason) or '-'}{_until(row.banned_until)}"


def _document(row: TwinLimit) -> dict[str, Any]:
    names = ("twin", "banned", "ban_reason", "banned_until", "updated")
    return {name: getattr(row, name) for name in names}


def _address_document(row: AddressBan) -> dict[str, Any]:
    names = ("network", "reason", "until", "updated")
    return {**{name: getattr(row, name) for name in names}, "banned": not row.is_over()}


def _key_document(row: SbdLimit) -> dict[str, Any]:
    names = ("banned", "ban_reason", "banned_until", "updated")
    return {"key": row.subject, **{name: getattr(row, name) for name in names}}


def _time(text: str) -> timedelta:
    match = re.fullmatch(r"([1-9]\d{0,5})([mhd])", text)
    if match is None:
        raise ArgumentTypeError("must be a number and m, h or d, such as 12h")
    found = timedelta(seconds=int(match[1]) * _UNITS[match[2]])
    if found > timedelta(days=MAX_DAYS):
        raise ArgumentTypeError(f"must be at most {MAX_DAYS} days; omit --for to ban without end")
    return found


def _until(end: datetime | None) -> str:
    return f" until {end:%Y-%m-%d %H:%M} UTC" if end else ""

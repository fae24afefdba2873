"""`manage.py rmb_ban list|set|lift`: twins that are kept out."""

from __future__ import annotations

import json
import re
from argparse import ArgumentParser, ArgumentTypeError, RawDescriptionHelpFormatter
from datetime import datetime, timedelta
from typing import Any, Final

from django.core.management.base import CommandError
from django.core.serializers.json import DjangoJSONEncoder
from django.utils import timezone

from relay.access import actor, faces
from relay.limits import listing, services
from relay.limits.models import TwinLimit
from relay.ops.command import RelayCommand
from relay.ops.printable import shown
from relay.twins import listing as twins
from relay.twins.fields import FieldError, parse_id

DESCRIPTION = """\
Ban twins. Within a second the relay closes the sessions of a banned twin, refuses new ones, and
answers requests to it with "twin is banned". Its queues stay for the retention; delete them with
rmb_queue purge.

  list                                         list banned twins, with reason and end
  set TWIN [--reason TEXT] [--for 30m|12h|7d]  ban a twin, for ever without --for
  lift TWIN                                    end a ban

A twin this relay has never met is refused, as its id may be misspelt; --unknown bans it all the
same.

  rmb_ban set 7 --reason "floods twin 12" --for 24h

exit code: 0 done, 1 refused or failed, 2 usage, 3 saved and pending until Redis is back
"""

_UNITS: Final = {"m": 60, "h": 3600, "d": 86_400}
MAX_DAYS: Final = 3650
LISTED: Final = 50


class Command(RelayCommand):
    """One sub-command each."""

    help = "Bans of twins: list, set, lift."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.formatter_class = RawDescriptionHelpFormatter
        parser.description = DESCRIPTION
        verbs = parser.add_subparsers(dest="verb", required=True)
        lister = verbs.add_parser("list", help="list banned twins")
        lister.add_argument("--limit", type=int, default=LISTED, help=f"default {LISTED}")
        lister.add_argument("--json", action="store_true", help="one JSON array")
        ban = verbs.add_parser("set", help="ban a twin, or change its ban")
        ban.add_argument("twin", help="twin id")
        ban.add_argument("--reason", default="", help="shown to operators")
        ban.add_argument("--for", dest="time", type=_time, help="such as 30m, 12h, 7d")
        ban.add_argument("--unknown", action="store_true", help="even if this relay never met it")
        lift = verbs.add_parser("lift", help="end a ban")
        lift.add_argument("twin", help="twin id")
        for changer in (ban, lift):
            changer.add_argument("--json", action="store_true", help="one JSON object")

    def handle(self, *args: Any, verb: str, **options: Any) -> None:
        try:
            with faces.in_command():
                if verb == "list":
                    self._list(options)
                else:
                    self._decide(verb, parse_id(options["twin"]), options)
        except FieldError as error:
            raise CommandError(str(error)) from None

    def _decide(self, verb: str, twin: int, options: dict[str, Any]) -> None:
        if verb == "lift":
            row = TwinLimit.objects.filter(twin=twin, banned=True).first()
            if row is None:
                raise CommandError(f"twin {twin} is not banned")
            services.lift_ban(twin, actor=actor.of_command())
            told = f"twin {twin} is let in again"
        else:
            if not options["unknown"]:
                twins.require_known(twin)
            until = timezone.now() + options["time"] if options["time"] else None
            services.ban(twin, options["reason"], until, actor=actor.of_command())
            told = f"twin {twin} is banned{_until(until)}"
        if options["json"]:
            self._write_json(_document(TwinLimit.objects.get(twin=twin)))
        self.require_in_force()
        if not options["json"]:
            self.stdout.write(told)

    def _list(self, options: dict[str, Any]) -> None:
        banned = listing.search(banned=True)
        rows = list(banned[: max(0, options["limit"])])
        if options["json"]:
            self._write_json([_document(row) for row in rows])
            return
        for row in rows:
            why = shown(row.ban_reason) or "-"
            self.stdout.write(f"{row.twin:>10}  {why}{_until(row.banned_until)}")
        self.stderr.write(f"{len(rows)} of {banned.count()} banned twins shown")

    def _write_json(self, document: Any) -> None:
        self.stdout.write(json.dumps(document, indent=2, cls=DjangoJSONEncoder))


def _document(row: TwinLimit) -> dict[str, Any]:
    names = ("twin", "banned", "ban_reason", "banned_until", "updated")
    return {name: getattr(row, name) for name in names}


def _time(text: str) -> timedelta:
    match = re.fullmatch(r"([1-9]\d{0,5})([mhd])", text)
    if match is None:
        raise ArgumentTypeError("must be a number and m, h or d, such as 12h")
    found = timedelta(seconds=int(match[1]) * _UNITS[match[2]])
    if found > timedelta(days=MAX_DAYS):
        raise ArgumentTypeError(f"must be at most {MAX_DAYS} days; without it for ever")
    return found


def _until(end: datetime | None) -> str:
    return f" until {end:%Y-%m-%d %H:%M} UTC" if end else ""

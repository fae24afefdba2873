"""`manage.py rmb_limit list|show|set|clear|waiting|default|sbd|hits`: what clients may send."""

from __future__ import annotations

import json
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Final

from django.core.management.base import CommandError
from django.core.serializers.json import DjangoJSONEncoder

from proto.sbd.frames import accept_as_argument
from relay.access import actor, faces
from relay.limits import defaults, hits, listing, sbd, services
from relay.limits.models import SbdLimit, TwinLimit
from relay.ops.command import RelayCommand
from relay.ops.printable import shown
from relay.twins import listing as twins
from relay.twins.fields import FieldError, parse_id

DESCRIPTION = """\
Limits of what a twin may send per minute, over all its sessions and workers, and of the messages
that may wait for it. Changes take effect within a second.

  list                     list twins with a limit of their own
  show TWIN                show a twin's limit and its refusals in the last hour
  set TWIN COUNT SIZE      give a twin its own limit: messages and bytes per minute; 0 0: no limit
  clear TWIN               use the default limit again
  waiting TWIN MESSAGES BYTES QUEUES
                           limit the messages that may wait for a twin, and the waiting messages
                           it has sent; 0: the settings queue.twin_messages, twin_bytes and
                           twin_queues
  default                  show the default limit, which applies to all other twins
  default COUNT SIZE       change the default limit
  default --clear          reset the default limit to the settings limits.count and limits.size
  sbd                      list SBD keys and networks with a limit of their own
  sbd --key=KEY KBIT       give an SBD key its own limit: kilobits per second; 0: no limit
  sbd --network NET KBIT   the same for each address of a network, or for one address
  sbd ... --clear          use the setting sbd.limit_kbit_per_s again
  hits                     list the twins and addresses with the most refusals in the last hour

  rmb_limit set 7 600 10000000      rmb_limit default 6000 100000000      rmb_limit hits --json

SIZE also limits a single message. `set` and `waiting` refuse a twin that this relay does not know,
because its id may be misspelt; --unknown accepts it.

exit code: 0 done, 1 refused or failed, 2 usage, 3 saved and pending until Redis is back
"""

LISTED: Final = 50


class Command(RelayCommand):
    """Command with one method for each sub-command."""

    help = "What clients may send: list, show, set, clear, waiting, default, sbd, hits."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.formatter_class = RawDescriptionHelpFormatter
        parser.description = DESCRIPTION
        verbs = parser.add_subparsers(dest="verb", required=True)
        lister = verbs.add_parser("list", help="list twins with a limit of their own")
        lister.add_argument(
            "--limit", type=int, default=LISTED, help=f"maximum number of rows (default {LISTED})"
        )
        show = verbs.add_parser("show", help="show a twin's limit and refusals")
        show.add_argument("twin", help="twin id")
        setter = verbs.add_parser("set", help="give a twin a limit of its own")
        setter.add_argument("twin", help="twin id")
        setter.add_argument("count", type=int, help="messages per minute")
        setter.add_argument(
            "size", type=int, help="bytes per minute, also the largest single message"
        )
        clear = verbs.add_parser("clear", help="use the default limit for a twin again")
        clear.add_argument("twin", help="twin id")
        waiting = verbs.add_parser("waiting", help="limit the messages that may wait for a twin")
        waiting.add_argument("twin", help="twin id")
        waiting.add_argument("messages", type=int, help="messages; 0: queue.twin_messages")
        waiting.add_argument("bytes", type=int, help="bytes in Redis; 0: queue.twin_bytes")
        waiting.add_argument("queues", type=int, help="queues; 0: queue.twin_queues")
        for each in (setter, waiting):
            each.add_argument(
                "--unknown", action="store_true", help="accept a twin that this relay does not know"
            )
        default = verbs.add_parser("default", help="show or change the default limit")
        default.add_argument("count", type=int, nargs="?", help="messages per minute")
        default.add_argument(
            "size", type=int, nargs="?", help="bytes per minute, also the largest single message"
        )
        default.add_argument("--clear", action="store_true", help="reset to the settings")
        of_sbd = verbs.add_parser("sbd", help="list or change limits of SBD keys and networks")
        accept_as_argument(of_sbd)
        subject = of_sbd.add_mutually_exclusive_group()
        subject.add_argument("--key", help="public key of an SBD client")
        subject.add_argument("--network", help="address, or network in CIDR notation")
        of_sbd.add_argument("kbit", type=int, nargs="?", help="kilobits per second; 0: no limit")
        of_sbd.add_argument("--clear", action="store_true", help="use the setting again")
        of_sbd.add_argument(
            "--limit", type=int, default=LISTED, help=f"maximum number of rows (default {LISTED})"
        )
        top = verbs.add_parser("hits", help="list the twins and addresses with the most refusals")
        top.add_argument(
            "--limit", type=int, default=20, help="maximum number of rows of each kind (default 20)"
        )
        top.add_argument("--minutes", type=int, default=hits.MINUTES, help="minutes to look back")
        for each in (lister, show, setter, clear, waiting, default, of_sbd, top):
            each.add_argument("--json", action="store_true", help="as JSON")

    def handle(self, *args: Any, verb: str, **options: Any) -> None:
        actions: dict[str, Callable[[dict[str, Any]], None]] = {
            "list": self._list,
            "show": self._show,
            "set": self._set,
            "clear": self._clear,
            "waiting": self._waiting,
            "default": self._default,
            "sbd": self._sbd,
            "hits": self._hits,
        }
        try:
            with faces.in_command():
                actions[verb](options)
        except FieldError as error:
            raise CommandError(str(error)) from None

    def _list(self, options: dict[str, Any]) -> None:
        limited = listing.search(limited=True)
        rows = list(limited[: max(0, options["limit"])])
        if options["json"]:
            self._write_json([_document(row) for row in rows])
            return
        for row in rows:
            self.stdout.write(f"{row.twin:>10}  {_told(row.count, row.size)}")
        self.stderr.write(f"{len(rows)} of {limited.count()} twins with a limit of their own shown")

    def _show(self, options: dict[str, Any]) -> None:
        twin = parse_id(options["twin"])
        row = TwinLimit.objects.filter(twin=twin).first() or TwinLimit(twin=twin)
        refused = sum(count for _, count in hits.of_twin(twin))
        if options["json"]:
            self._write_json({**_document(row), "refused": refused})
            return
        default = defaults.get()
        own = row.count is not None
        limit = _told(row.count, row.size) if own else _told(default.count, default.size)
        self.stdout.write(f"limit    {limit}{'' if own else ' (of all twins)'}")
        if any(row.waiting):
            self.stdout.write(f"waiting  {_waits(row)}")
        why = shown(row.ban_reason) or "yes"
        self.stdout.write(f"banned   {why if row.ban_holds() else 'no'}")
        self.stdout.write(f"refused  {refused} messages in the last hour")

    def _set(self, options: dict[str, Any]) -> None:
        twin, count, size = _known(options), options["count"], options["size"]
        services.set_limit(twin, count, size, actor=actor.of_command())
        self._decided(twin, _told(count, size), options)

    def _clear(self, options: dict[str, Any]) -> None:
        twin = _known(options)
        services.set_limit(twin, None, None, actor=actor.of_command())
        self._decided(twin, "the limit of all twins", options)

    def _waiting(self, options: dict[str, Any]) -> None:
        twin = _known(options)
        bounds = (options[name] or None for name in ("messages", "bytes", "queues"))
        services.set_waiting(twin, *bounds, actor=actor.of_command())
        self._decided(twin, _waits(TwinLimit.objects.get(twin=twin)), options)

    def _decided(self, twin: int, told: str, options: dict[str, Any]) -> None:
        if options["json"]:
            self._write_json(_document(TwinLimit.objects.get(twin=twin)))
        self.require_in_force()
        if not options["json"]:
            self.stdout.write(f"twin {twin}: {told}")

    def _default(self, options: dict[str, Any]) -> None:
        count, size = options["count"], options["size"]
        if (count is None) != (size is None) or (options["clear"] and count is not None):
            raise CommandError("give both messages and bytes, or --clear, or nothing", returncode=2)
        if options["clear"]:
            defaults.clear(actor=actor.of_command())
        elif count is not None:
            defaults.put(count, size, actor=actor.of_command())
        found = defaults.get()
        if options["json"]:
            self._write_json(asdict(found))
        if options["clear"] or count is not None:
            self.require_in_force()
        if not options["json"]:
            self.stdout.write(f"{_told(found.count, found.size)} (of the {found.source})")

    def _sbd(self, options: dict[str, Any]) -> None:
        subject, kbit = options["key"] or options["network"], options["kbit"]
        if subject is None and not options["clear"] and kbit is None:
            self._list_sbd(options)
            return
        if subject is None or options["clear"] == (kbit is not None):
            text = "give --key or --network, and kilobits per second or --clear"
            raise CommandError(text, returncode=2)
        row = sbd.set_limit(subject, kbit, actor=actor.of_command())
        if options["json"]:
            self._write_json(_sbd_document(row))
        self.require_in_force()
        if not options["json"]:
            self.stdout.write(f"{row.subject}: {_kbit(row)}")

    def _list_sbd(self, options: dict[str, Any]) -> None:
        limited = sbd.search().filter(kbit_per_s__isnull=False)
        rows = list(limited[: max(0, options["limit"])])
        if options["json"]:
            self._write_json([_sbd_document(row) for row in rows])
            return
        for row in rows:
            self.stdout.write(f"{row.subject:<43}  {_kbit(row)}")
        self.stderr.write(f"{len(rows)} of {limited.count()} limits of SBD shown")

    def _hits(self, options: dict[str, Any]) -> None:
        top = hits.top(options["limit"], minutes=options["minutes"])
        if options["json"]:
            self._write_json(asdict(top))
            return
        self.stdout.write("MESSAGES  TWIN")
        for twin in top.twins:
            notes = [*["banned"] * twin.banned, *["limit of its own"] * twin.limited]
            self.stdout.write(f"{twin.messages:>8}  {twin.twin}  {', '.join(notes)}".rstrip())
        self.stdout.write("\nMESSAGES  HANDSHAKES  ADDRESS")
        for each in top.addresses:
            self.stdout.write(f"{each.messages:>8}  {each.handshakes:>10}  {shown(each.address)}")

    def _write_json(self, document: Any) -> None:
        self.stdout.write(json.dumps(document, indent=2, cls=DjangoJSONEncoder))


def _known(options: dict[str, Any]) -> int:
    twin = parse_id(options["twin"])
    if not options.get("unknown"):
        twins.require_known(twin)
    return twin


def _told(count: int | None, size: int | None) -> str:
    return f"{count} messages, {size} bytes per minute" if count else "no limit"


def _kbit(row: SbdLimit) -> str:
    if row.kbit_per_s is None:
        return "the limit of the settings"
    return f"{row.kbit_per_s} kbit/s" if row.kbit_per_s else "no limit"


def _sbd_document(row: SbdLimit) -> dict[str, Any]:
    return {name: getattr(row, name) for name in ("subject", "is_key", "kbit_per_s", "banned")}


def _waits(row: TwinLimit) -> str:
    units = ("messages", "bytes", "queues")
    own = [f"{bound} {unit}" for bound, unit in zip(row.waiting, units, strict=True) if bound]
    return f"{', '.join(own)} may wait" if own else "the limits of the settings"


def _document(row: TwinLimit) -> dict[str, Any]:
    names = (
        *("twin", "count", "size", "waiting_messages", "waiting_bytes", "waiting_queues"),
        *("banned", "ban_reason", "banned_until", "note"),
    )
    return {name: getattr(row, name) for name in names}

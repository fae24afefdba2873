"""`manage.py rmb_queue list|show|move|purge|export`: waiting messages, on the command line."""

from __future__ import annotations

import json
import time
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Any, Final

from django.core.management.base import CommandError
from redis.exceptions import RedisError

from relay.access import actor, faces
from relay.ops.command import RelayCommand
from relay.ops.redis_client import client
from relay.ops.screen import amount, span
from relay.ops.wording import counted
from relay.queues import purging, services, walking
from relay.queues.headers import Header
from relay.queues.walking import Queue
from relay.sessions.rates import WINDOW_S
from relay.twins.fields import FieldError, parse_id

DESCRIPTION = f"""\
List, move and delete messages that wait for sessions. Payloads are neither shown nor read.

  list [TWIN]     queues that hold messages, the fullest first
  show KEY        the messages of one queue, the oldest first
  move KEY TO     move messages to another session of the same twin; TO may be connected
  purge TWIN      delete all messages for a twin that is banned or was removed
  purge KEY       delete all messages for one session of any twin
  export KEY      print all headers of a queue, as JSON lines or CSV

IN/S and OUT/S are messages per second that entered and left a queue, over the last {WINDOW_S} s.

KEY is <twin> or <twin>:<session id>. Messages of a connected session can be neither moved nor
purged. `purge` asks for confirmation, unless you add --yes (--json needs it). Messages that arrive
after the question stay.

  rmb_queue list                       rmb_queue list --order=-rate_in
  rmb_queue show 7:phone --limit 20    rmb_queue move 7:phone 7:laptop
  rmb_queue purge 7:phone              rmb_queue export 7 --form csv > messages.csv

exit code: 0 done, 1 refused or failed, 2 usage
"""

LISTED: Final = 50
_ORDERS: Final = ", ".join(walking.ORDERS)


class Command(RelayCommand):
    """One sub-command for each action. Payloads are never shown."""

    help = "Messages that wait for sessions: list, show, move, purge, export."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.formatter_class = RawDescriptionHelpFormatter
        parser.description = DESCRIPTION
        verbs = parser.add_subparsers(dest="verb", required=True)
        lister = verbs.add_parser("list", help="list queues that hold messages")
        lister.add_argument("twin", nargs="?", help="only queues of this twin")
        lister.add_argument(
            "--order",
            default="-messages",
            help=f"{_ORDERS}; with a minus the largest first: --order=-size",
        )
        _add_limit(lister)
        show = verbs.add_parser("show", help="list the messages of one queue")
        show.add_argument("key", help="key of the session")
        show.add_argument("--after", default="", metavar="ENTRY", help="continue after this entry")
        _add_limit(show)
        move = verbs.add_parser("move", help="move messages to another session of the same twin")
        move.add_argument("key", help="key of the session they wait for")
        move.add_argument("to", help="key of the other session")
        move.add_argument("--json", action="store_true", help="one JSON object")
        purge = verbs.add_parser("purge", help="delete messages")
        purge.add_argument("key", help="twin, or key of one session")
        purge.add_argument("--yes", action="store_true", help="do not ask")
        purge.add_argument("--json", action="store_true", help="one JSON object; needs --yes")
        export = verbs.add_parser("export", help="print all headers of one queue")
        export.add_argument("key", help="key of the session")
        export.add_argument(
            "--form", choices=services.FORMS, default=services.FORMS[0], help="default jsonl"
        )

    def handle(self, *args: Any, verb: str, **options: Any) -> None:
        actions: dict[str, Callable[[dict[str, Any]], None]] = {
            "list": self._list,
            "show": self._show,
            "move": self._move,
            "purge": self._purge,
            "export": self._export,
        }
        try:
            with faces.in_command():
                actions[verb](options)
        except FieldError as error:
            raise CommandError(str(error)) from None
        except RedisError as error:
            raise CommandError(f"redis does not answer: {error}") from None

    def _list(self, options: dict[str, Any]) -> None:
        twin = parse_id(options["twin"]) if options["twin"] else None
        page = services.list_queues(twin=twin, order=options["order"], limit=options["limit"])
        if options["json"]:
            self._write_json(asdict(queue) for queue in page.items)
            return
        now = time.time()
        self.stdout.write("  MESSAGES    IN/S   OUT/S   MEMORY  OLDEST  QUEUE")
        for queue in page.items:
            self.stdout.write(
                f"{queue.messages:>10} {amount(queue.rate_in):>7} {amount(queue.rate_out):>7} "
                f"{amount(queue.size_bytes):>7}B "
                f"{span(now - queue.oldest_at):>7}  {_shown(queue)}"
            )
        self.stderr.write("there are more: use --limit, or name a twin" if page.next else "no more")

    def _show(self, options: dict[str, Any]) -> None:
        page = services.list_headers(options["key"], limit=options["limit"], after=options["after"])
        if options["json"]:
            self._write_json(asdict(header) for header in page.items)
            return
        now = time.time()
        self.stdout.write("   AGE     SIZE  EXPIRES  FROM            WHAT")
        for header in page.items:
            self.stdout.write(_line(header, now))
        self.stderr.write(f"there are more: --after {page.next}" if page.next else "no more")

    def _move(self, options: dict[str, Any]) -> None:
        moved = services.move(options["key"], options["to"], actor=actor.of_command())
        if options["json"]:
            self.stdout.write(json.dumps(asdict(moved), indent=2))
        else:
            self.stdout.write(
                f"{counted(moved.moved, 'message')} moved; {moved.expired} expired and "
                f"{moved.malformed} malformed ones stay"
            )
        if moved.stopped:
            raise CommandError(f"not all messages were moved: {moved.stopped}")

    def _purge(self, options: dict[str, Any]) -> None:
        key = options["key"]
        if options["json"] and not options["yes"]:
            raise CommandError("--json needs --yes, because it asks no question", returncode=2)
        twin, _ = walking.parse(key)
        if key.isdecimal() and not services.in_good_standing(twin):
            purged, whose = self._purge_twin(twin, options["yes"]), f"twin {twin}"
        else:
            purged, whose = self._purge_queue(key, options["yes"]), key
        if options["json"]:
            self.stdout.write(json.dumps({"key": key, "purged": purged}, indent=2))
        elif purged:
            self.stdout.write(f"{counted(purged, 'message')} deleted")
        else:
            self.stdout.write(f"no messages wait for {whose}")

    def _purge_twin(self, twin: int, sure: bool) -> int:
        queues = purging.waiting(client(), twin)
        connected = sum(queue.connected for queue in queues)
        if connected:
            self.stderr.write(f"queues of {counted(connected, 'connected session')} are kept")
        count = sum(queue.messages for queue in queues if not queue.connected)
        if not count:
            return 0
        if not sure and not _agreed(f"Delete {counted(count, 'message')} for twin {twin}? [y/N] "):
            raise CommandError("nothing was deleted")
        return services.purge_twin(twin, actor=actor.of_command(), seen=queues)

    def _purge_queue(self, key: str, sure: bool) -> int:
        queue = walking.one(client(), key)
        if queue is None:
            return 0
        what = counted(queue.messages, "message")
        question = f"Twin {queue.twin} may still fetch them. Delete {what} for {key}?"
        if not sure and not _agreed(f"{question} [y/N] "):
            raise CommandError("nothing was deleted")
        return services.purge(key, actor=actor.of_command(), up_to=queue.newest)

    def _export(self, options: dict[str, Any]) -> None:
        for line in services.export(options["key"], options["form"], actor=actor.of_command()):
            self.stdout.write(line, ending="")

    def _write_json(self, items: Iterable[dict[str, Any]]) -> None:
        self.stdout.write(json.dumps(list(items), indent=2))


def _add_limit(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--limit", type=int, default=LISTED, help=f"maximum number of rows (default {LISTED})"
    )
    parser.add_argument("--json", action="store_true", help="one JSON array")


def _shown(queue: Queue) -> str:
    return f"{queue.key!r}{'  connected' if queue.connected else ''}"


def _line(header: Header, now: float) -> str:
    if header.problem:
        what = f"malformed: {header.problem}"
    else:
        what = " ".join(filter(None, (header.kind, header.command, header.uid)))
    left = span(header.deadline - now) if header.judged_deadline else "-"
    return (
        f"{span(now - header.at):>6} {amount(header.size_bytes):>7}B "
        f"{'expired' if header.expired else left:>8}  {header.source!r:<15} {what!r}"
    )


def _agreed(question: str) -> bool:
    try:
        return input(question).strip().lower() in ("y", "yes")
    except EOFError:
        return False

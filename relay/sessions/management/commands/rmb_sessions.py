"""`manage.py rmb_sessions`: the sessions that are held now, or were."""

from __future__ import annotations

import json
import time
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any, Final

from django.core.management.base import CommandError
from django.core.serializers.json import DjangoJSONEncoder
from django.db import Error as DatabaseError

from relay.access import faces
from relay.mux import listing as connections
from relay.ops.command import RelayCommand
from relay.ops.printable import shown
from relay.ops.screen import amount, span
from relay.sessions import listing
from relay.sessions.listing import LiveSession
from relay.sessions.models import CARRIERS, PROTOCOLS, Session
from relay.sessions.rates import WINDOW_S
from relay.twins.fields import FieldError, parse_id

DESCRIPTION = f"""\
List connected sessions, newest first. --history also lists ended sessions.

  rmb_sessions                              newest sessions
  rmb_sessions 7                            sessions of twin 7
  rmb_sessions --order=-messages_out        sessions that received the most messages
  rmb_sessions --order=-rate_in             sessions that send the most messages per second now
  rmb_sessions --address 192.0.2.1 --json   sessions from one address, as JSON
  rmb_sessions --protocol sbd               sessions of SBD clients
  rmb_sessions --connections                connections with streams
  rmb_sessions 7 --history                  sessions of twin 7 with start, end and reason

A new session appears after about a second. Counters are up to 15 s old. IN/S and OUT/S are messages
per second from and to the client, over the last {WINDOW_S} s. STREAM is the connection and the
stream that carry the session; -: its own websocket. To end a session, use rmb_kick.

exit code: 0 done, 1 Redis or the database does not answer, 2 usage
"""

LISTED: Final = 50
MAX_LISTED: Final = 1000


class Command(RelayCommand):
    """A table, or one JSON array."""

    help = "List connected and former sessions."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.formatter_class = RawDescriptionHelpFormatter
        parser.description = DESCRIPTION
        parser.add_argument("twin", nargs="?", help="only sessions of this twin")
        parser.add_argument("--sid", help="only sessions with this id; may be empty")
        parser.add_argument(
            "--protocol", choices=PROTOCOLS, default="", help="only sessions of this protocol"
        )
        parser.add_argument(
            "--peer", default="", help="only SBD clients whose public key begins with this text"
        )
        parser.add_argument("--address", default="", help="only sessions from this address")
        parser.add_argument("--worker", default="", help="only sessions of this worker (boot id)")
        parser.add_argument(
            "--carrier",
            choices=CARRIERS,
            default="",
            help="only sessions on their own websocket, or on streams of a shared one",
        )
        parser.add_argument(
            "--order",
            default="-opened",
            help=f"{', '.join(listing.ORDERS)}; with - in descending order",
        )
        parser.add_argument(
            "--limit", type=int, default=LISTED, help=f"maximum number of rows (default {LISTED})"
        )
        parser.add_argument("--history", action="store_true", help="also list ended sessions")
        parser.add_argument(
            "--connections",
            action="store_true",
            help="list connections with streams instead of sessions",
        )
        parser.add_argument("--json", action="store_true", help="one JSON array")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            twin = parse_id(options["twin"]) if options["twin"] else None
            chosen = {
                "twin": twin,
                "sid": options["sid"],
                "protocol": options["protocol"],
                "peer": options["peer"],
                "address": options["address"],
                "worker": options["worker"],
                "carrier": options["carrier"],
            }
            with faces.in_command():
                if options["connections"]:
                    self._connections(options)
                elif options["history"]:
                    self._history(chosen, options)
                else:
                    self._live(chosen, options)
        except FieldError as error:
            raise CommandError(str(error)) from None
        except DatabaseError as error:
            raise CommandError(f"the database does not answer: {error}") from None

    def _live(self, chosen: dict[str, Any], options: dict[str, Any]) -> None:
        page = listing.live(**chosen, order=options["order"], limit=options["limit"])
        if options["json"]:
            self._write_json(asdict(session) for session in page.items)
            return
        now = time.time()
        self.stdout.write(
            "    UP   IN/S  OUT/S     IN    OUT BACKLOG  DROPS  "
            "ADDRESS          STREAM  SLOT  SESSION"
        )
        for session in page.items:
            self.stdout.write(_line(session, now))
        self.stderr.write(
            f"{len(page.items)} of {listing.total(chosen['protocol'])} sessions shown"
        )

    def _connections(self, options: dict[str, Any]) -> None:
        found = connections.live(
            worker=options["worker"], address=options["address"], limit=options["limit"]
        ).items
        if options["json"]:
            self._write_json(map(asdict, found))
            return
        now = time.time()
        self.stdout.write(
            "    UP STREAMS SESSIONS QUEUED   HELD UNSENT STALLS  ADDRESS  CONNECTION"
        )
        for each in found:
            self.stdout.write(
                f"{span(now - each.opened_at.timestamp()):>6} {each.streams:>7} "
                f"{each.sessions:>8} {amount(each.queued_bytes):>6} {amount(each.held_bytes):>6} "
                f"{amount(each.unsent_bytes):>6} {amount(each.stalls):>6}  "
                f"{shown(each.address)}  {each.id}"
            )

    def _history(self, chosen: dict[str, Any], options: dict[str, Any]) -> None:
        limit = options["limit"]
        if not 1 <= limit <= MAX_LISTED:
            raise CommandError(f"limit: must be between 1 and {MAX_LISTED}")
        rows = listing.history(**chosen).order_by("-opened_at", "-pk")[:limit]
        if options["json"]:
            self._write_json(_row(session) for session in rows)
            return
        self.stdout.write("CONNECTED            ENDED                END              SESSION")
        for session in rows:
            ended = f"{session.closed_at:%Y-%m-%d %H:%M:%S}" if session.closed_at else "-"
            self.stdout.write(
                f"{session.opened_at:%Y-%m-%d %H:%M:%S}  {ended:<19}  "
                f"{session.close_reason or 'open':<15}  {session.key_text!r}  "
                f"{shown(session.remote)}"
            )

    def _write_json(self, items: Iterable[dict[str, Any]]) -> None:
        self.stdout.write(json.dumps(list(items), indent=2, cls=DjangoJSONEncoder))


def _line(session: LiveSession, now: float) -> str:
    return (
        f"{span(now - session.opened_at.timestamp()):>6} {amount(session.rate_in):>6} "
        f"{amount(session.rate_out):>6} {amount(session.messages_in):>6} "
        f"{amount(session.messages_out):>6} {amount(session.backlog):>7} "
        f"{amount(session.drops):>6}  {shown(session.address):<16} "
        f"{'-' if session.stream is None else session.stream:>6}  {session.slot:>4}  "
        f"{session.key!r}"
    )


def _row(session: Session) -> dict[str, Any]:
    names = (
        "protocol", "twin", "peer", "epoch", "worker", "slot", "connection", "stream", "remote",
        "user_agent", "opened_at", "closed_at", "close_reason", "messages_in", "messages_out",
        "bytes_in", "bytes_out", "drops", "slowed",
    )  # fmt: skip
    return {"key": session.key_text, **{name: getattr(session, name) for name in names}}

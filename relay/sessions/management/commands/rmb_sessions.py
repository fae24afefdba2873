"""`manage.py rmb_sessions`: the sessions that are held now, or were."""

from __future__ import annotations

import time
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from dataclasses import asdict
from typing import Any

from relay.mux import listing as connections
from relay.ops.printable import shown
from relay.ops.screen import amount, span
from relay.ops.wording import counted
from relay.resources.command import ResourceCommand
from relay.sessions import listing
from relay.sessions.rates import WINDOW_S
from relay.sessions.resources import HISTORY, LIVE

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
per second from and to the client, over the last {WINDOW_S} s. STREAM is the stream of a
connection that carries the session; -: its own websocket. To end a session, use rmb_kick.

exit code: 0 done, 1 Redis or the database does not answer, 2 usage
"""


class Command(ResourceCommand):
    """Lists the resources of `relay.sessions.resources`, and connections."""

    help = "List connected and former sessions."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.formatter_class = RawDescriptionHelpFormatter
        parser.description = DESCRIPTION
        self.add_list(parser, LIVE, HISTORY)
        parser.add_argument("--history", action="store_true", help="also list ended sessions")
        parser.add_argument(
            "--connections",
            action="store_true",
            help="list connections with streams instead of sessions",
        )

    def run(self, options: dict[str, Any]) -> None:
        if options["connections"]:
            self._connections(options)
        elif options["history"]:
            self.write_list(HISTORY, options)
        else:
            self.write_list(LIVE, options)
            count = listing.total(options["protocol"] or "")
            self.stderr.write(f"{counted(count, 'session')} connected")

    def _connections(self, options: dict[str, Any]) -> None:
        found = connections.live(
            worker=options["worker"] or "",
            address=options["address"] or "",
            limit=options["limit"],
            cursor=options["cursor"],
        ).items
        if options["json"]:
            self.write_json(list(map(asdict, found)))
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

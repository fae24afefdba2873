"""`manage.py rmb_kick SESSION`: end one session, all of a twin, or those of a connection."""

from __future__ import annotations

import json
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from typing import Any

from django.core.management.base import CommandError

from relay.access import actor, faces
from relay.mux import services as connections
from relay.ops.command import RelayCommand
from relay.ops.wording import counted
from relay.sessions import services
from relay.twins.fields import FieldError, parse_id

DESCRIPTION = """\
End a session, all sessions of a twin, or all sessions of a connection, within a second. Messages in
queues stay.

  rmb_kick 7:phone          the session with the id `phone` of twin 7
  rmb_kick 7                the session of twin 7 that has no id
  rmb_kick 7 --all          every session of twin 7
  rmb_kick sbd:<key>        the session of an SBD client
  rmb_kick --connection 192.0.2.1:5000     a connection and the sessions on its streams

Clients may connect again at once. To keep a twin out, use rmb_ban.

exit code: 0 done, 1 not connected or failed, 2 usage
"""


class Command(RelayCommand):
    """Notifies the worker that holds the session."""

    help = "End one session, all sessions of a twin, or those of one connection."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.formatter_class = RawDescriptionHelpFormatter
        parser.description = DESCRIPTION
        parser.add_argument(
            "session",
            help="<twin>, <twin>:<session id> or sbd:<public key>; with --all a twin id; with "
            "--connection the address of a connection or its id, <worker>/<number>",
        )
        which = parser.add_mutually_exclusive_group()
        which.add_argument("--all", action="store_true", help="every session of the twin")
        which.add_argument(
            "--connection",
            action="store_true",
            help="a connection with streams, and every session on it",
        )
        parser.add_argument("--reason", default="", help="reason for the logs")
        parser.add_argument("--json", action="store_true", help="one JSON object")

    def handle(self, *args: Any, session: str, reason: str, **options: Any) -> None:
        by = actor.of_command()
        try:
            with faces.in_command():
                if options["all"]:
                    count = services.kick_twin(parse_id(session), actor=by, reason=reason)
                    document: dict[str, Any] = {"twin": int(session), "sessions": count}
                    told = f"{counted(count, 'session')} of twin {session} will end within a second"
                elif options["connection"]:
                    found = connections.find(session)
                    connections.kick(found.worker, found.number, actor=by, reason=reason)
                    document = {"connection": found.id, "sessions": found.sessions}
                    held = counted(found.sessions, "session")
                    told = f"connection {found.id} with {held} will end within a second"
                else:
                    epoch = services.kick(session, actor=by, reason=reason)
                    document = {"session": session, "epoch": epoch}
                    told = f"session {session!r} will end within a second"
        except FieldError as error:
            raise CommandError(str(error)) from None
        self.stdout.write(json.dumps(document, indent=2) if options["json"] else told)

"""`manage.py rmb_kick SESSION`: end one session, or all of a twin."""

from __future__ import annotations

import json
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from typing import Any

from django.core.management.base import CommandError

from relay.access import actor, faces
from relay.ops.command import RelayCommand
from relay.ops.wording import counted
from relay.sessions import services
from relay.twins.fields import FieldError, parse_id

DESCRIPTION = """\
End one session, or all sessions of a twin, within a second. Queues stay.

  rmb_kick 7:phone          the session with the id `phone` of twin 7
  rmb_kick 7                the session of twin 7 that has no id
  rmb_kick 7 --all          every session of twin 7
  rmb_kick sbd:<key>        the session of an SBD client

Clients may connect again at once. To keep a twin out, use rmb_ban.

exit code: 0 done, 1 not connected or failed, 2 usage
"""


class Command(RelayCommand):
    """Tells the worker that holds it."""

    help = "End one session, or all sessions of a twin."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.formatter_class = RawDescriptionHelpFormatter
        parser.description = DESCRIPTION
        parser.add_argument(
            "session", help="<twin>, <twin>:<session id> or sbd:<public key>; with --all a twin id"
        )
        parser.add_argument("--all", action="store_true", help="every session of the twin")
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
                else:
                    epoch = services.kick(session, actor=by, reason=reason)
                    document = {"session": session, "epoch": epoch}
                    told = f"session {session!r} will end within a second"
        except FieldError as error:
            raise CommandError(str(error)) from None
        self.stdout.write(json.dumps(document, indent=2) if options["json"] else told)

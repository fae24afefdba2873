"""`manage.py rmb_queue list|purge`: mail that waits for a twin, on the command line."""

from __future__ import annotations

import json
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from redis.exceptions import RedisError

from relay.limits.models import TwinLimit
from relay.ops.redis_client import client
from relay.queues import purging
from relay.twins.fields import FieldError, parse_id
from relay.twins.models import Twin

DESCRIPTION = """\
Mail that waits for a twin whose sessions are away.

  list TWIN    how many messages wait for each of its sessions
  purge TWIN   delete them, after a question; only for a twin that is banned or was removed, and
               not those of a session that is connected
"""


class Command(BaseCommand):
    """One sub-command each. Payloads are never shown."""

    help = "Mail that waits for a twin: list, purge."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.formatter_class = RawDescriptionHelpFormatter
        parser.description = DESCRIPTION
        verbs = parser.add_subparsers(dest="verb", required=True)
        lister = verbs.add_parser("list", help="messages for each session of a twin")
        lister.add_argument("twin", help="twin id")
        lister.add_argument("--json", action="store_true", help="one JSON array")
        purge = verbs.add_parser("purge", help="delete the mail of a banned or removed twin")
        purge.add_argument("twin", help="twin id")
        purge.add_argument("--yes", action="store_true", help="do not ask")

    def handle(self, *args: Any, verb: str, **options: Any) -> None:
        try:
            twin = parse_id(options["twin"])
            queues = purging.waiting(client(), twin)
            if verb == "list":
                self._list(queues, options["json"])
            else:
                self._purge(twin, queues, options["yes"])
        except FieldError as error:
            raise CommandError(str(error)) from None
        except RedisError as error:
            raise CommandError(f"redis does not answer: {error}") from None

    def _list(self, queues: list[purging.Waiting], as_json: bool) -> None:
        if as_json:
            self.stdout.write(json.dumps([queue._asdict() for queue in queues], indent=2))
            return
        for queue in queues:
            note = "  connected" if queue.connected else ""
            self.stdout.write(f"{queue.messages:>10}  {queue.key!r}{note}")
        self.stderr.write(f"{sum(queue.messages for queue in queues)} messages wait")

    def _purge(self, twin: int, queues: list[purging.Waiting], sure: bool) -> None:
        limit = TwinLimit.objects.filter(twin=twin).first()
        if Twin.objects.filter(pk=twin).exists() and not (limit and limit.ban_holds()):
            raise CommandError(f"twin {twin} is neither banned nor removed: its mail is kept")
        connected = sum(queue.connected for queue in queues)
        if connected:
            self.stderr.write(f"{connected} sessions are connected: their mail is kept")
        count = sum(queue.messages for queue in queues if not queue.connected)
        if not count:
            self.stdout.write(f"no mail waits for twin {twin}")
            return
        if not sure and not _agreed(f"Delete {count} messages for twin {twin}? [y/N] "):
            raise CommandError("nothing was deleted")
        self.stdout.write(f"{purging.purge(client(), twin)} messages deleted")


def _agreed(question: str) -> bool:
    try:
        return input(question).strip().lower() in ("y", "yes")
    except EOFError:
        return False

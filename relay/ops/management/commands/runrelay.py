"""`manage.py runrelay`: run a relay. Options and defaults: `relay/server/cli.py`."""

from __future__ import annotations

import sys
from typing import Any, NoReturn

from django.core.management.base import BaseCommand

from relay.server import cli


class Command(BaseCommand):
    """Pass the command line to the parser shared with `rmb-relay`.

    `manage.py` itself does so before Django is set up, because these options are settings; this
    class serves `django-admin` and the list of commands.
    """

    help = "Run a relay: its workers and the operator site."
    requires_system_checks: tuple[str, ...] = ()

    def run_from_argv(self, argv: list[str]) -> NoReturn:
        sys.exit(cli.run(argv[2:], "runrelay"))

    def handle(self, *args: Any, **options: Any) -> NoReturn:
        sys.exit(cli.run(list(args), "runrelay"))

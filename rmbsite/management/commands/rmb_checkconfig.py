"""`manage.py rmb_checkconfig`: is the configuration valid, and which value comes from where."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management import call_command
from django.core.management.base import BaseCommand

from rmbsite import config


class Command(BaseCommand):
    """Bad settings never get here: they end every command with exit code 2 and one line."""

    help = "Show the settings in force and where each comes from, and run the system checks."
    requires_system_checks = ()  # it runs them itself, after the settings

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--all", action="store_true", help="show defaults too")
        parser.add_argument("--json", action="store_true", help="one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        resolved = config.resolve()
        shown: dict[str, dict[str, Any]] = {}
        for each in config.all_options():
            origin = resolved.origins.get(each.key)
            if origin is None and not options["all"]:
                continue
            value = getattr(getattr(resolved.config, each.section), each.name)
            shown[each.key] = {"value": each.shown(value), "origin": origin or "default"}
        if options["json"]:
            self.stdout.write(json.dumps(shown, indent=2))
        else:
            for key, found in shown.items():
                self.stdout.write(f"{key} = {_text(found['value'])}  ({found['origin']})")
            if not shown:
                self.stdout.write("every setting has its default")
        # Errors end the command with exit code 1; warnings are printed.
        call_command("check", stdout=self.stderr, stderr=self.stderr)


def _text(value: Any) -> str:
    return ", ".join(value) if isinstance(value, tuple) else str(value)

"""`manage.py rmb_checkconfig`: is the configuration valid, and which value comes from where."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from django.core.management import call_command
from django.core.management.base import BaseCommand

from relay.server import running
from relay.server.running import Running
from rmbsite import config


class Command(BaseCommand):
    """The command. Invalid settings end every command before this one runs, with exit code 2 and
    one line.
    """

    help = (
        "Show the settings and the source of each, show settings that a running relay uses with "
        "other values, and run the system checks."
    )
    requires_system_checks = ()  # it runs them itself, after the settings

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--all", action="store_true", help="show defaults too")
        parser.add_argument("--json", action="store_true", help="one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        resolved = config.resolve()
        shown = config.describe(resolved, defaults=options["all"])
        relay = running.read(resolved.config.data_dir)
        others = _differences(relay, config.describe(resolved)) if relay else {}
        if options["json"]:
            for key, found in others.items():
                shown.setdefault(key, config.describe(resolved)[key])["running"] = found
            self.stdout.write(json.dumps(shown, indent=2))
        else:
            self._write(shown)
            if not shown:
                self.stdout.write("every setting has its default")
            if relay:
                uses = "uses these values instead:" if others else "uses the same values"
                self.stdout.write(f"\nThe relay that runs (pid {relay.pid}) {uses}")
                self._write(others)
        # Errors end the command with exit code 1; warnings are printed.
        call_command("check", stdout=self.stderr, stderr=self.stderr)

    def _write(self, settings: Mapping[str, Mapping[str, Any]]) -> None:
        for key, found in settings.items():
            self.stdout.write(f"{key} = {_text(found['value'])}  ({found['origin']})")


def _differences(relay: Running, here: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the settings that a running relay uses instead of those that commands find."""
    found = {}
    for key, each in here.items():
        used = relay.settings.get(key)
        # The folder is the same even if spelled differently, as the relay's record was found in it.
        if used and key != "data.dir" and _text(used["value"]) != _text(each["value"]):
            found[key] = dict(used)
    return found


def _text(value: Any) -> str:
    return ", ".join(value) if isinstance(value, list | tuple) else str(value)

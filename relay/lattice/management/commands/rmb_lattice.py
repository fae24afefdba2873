"""`manage.py rmb_lattice`: the lattice from the command line, and its processes by hand."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError

from relay.lattice import launch
from relay.lattice.resources import RESOURCES
from relay.resources.command import ResourceCommand


class Command(ResourceCommand):
    """The resources of `relay.lattice.resources`, and the processes of the lattice."""

    help = (
        "The wasmCloud lattice: list hosts, actors, providers, links, calls and findings; put and "
        "delete links and policies; call operations; run a bridge or a monitor."
    )
    resources = RESOURCES

    def add_words(self, words: Any) -> None:
        """Add the processes."""
        bridge = words.add_parser("bridge", help="run a bridge until Ctrl-C")
        bridge.add_argument(
            "--relay", required=True, metavar="URL", help="relay: ws://host:port or wss://host"
        )
        bridge.add_argument(
            "--twins",
            metavar="URL",
            help="operator site that has the registry; required with twins.source = registry",
        )
        monitor = words.add_parser("monitor", help="run a monitor until Ctrl-C")
        for kind, own in (("bridge", bridge), ("monitor", monitor)):
            own.set_defaults(kind=kind)
            own.add_argument(
                "--embedded", action="store_true", help="use the keys of an embedded relay"
            )

    def run(self, options: dict[str, Any]) -> None:
        """Do what the arguments say; a process takes the place of this one."""
        kind = options.get("kind")
        if kind is None:
            super().run(options)
            return
        try:
            launch.become(
                launch.describe(
                    kind,
                    relay=options.get("relay"),
                    twins=options.get("twins"),
                    embedded=options["embedded"],
                )
            )
        except launch.SettingsError as error:
            raise CommandError(str(error), returncode=2) from None

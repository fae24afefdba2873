"""`manage.py rmb_lattice`: the lattice from the command line, and its processes by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from django.core.management.base import CommandError

from proto.lattice.errors import KeyFormatError
from proto.lattice.nkeys import KeyKind
from relay.lattice import launch, own_keys
from relay.lattice.resources import RESOURCES
from relay.resources.command import ResourceCommand

_KEYS: Final = {
    "cluster": KeyKind.CLUSTER, "provider": KeyKind.PROVIDER, "actor": KeyKind.ACTOR,
}  # fmt: skip


class Command(ResourceCommand):
    """The resources of `relay.lattice.resources`, and the processes of the lattice."""

    help = (
        "The wasmCloud lattice: list hosts, actors, providers, links, calls and findings; put and "
        "delete links and policies; call operations; generate keys; run a bridge or a monitor."
    )
    resources = RESOURCES

    def add_words(self, words: Any) -> None:
        """Add the words for keys and for the processes."""
        told = "generate a key, unless its file exists, and print the public key"
        key = words.add_parser("key", help=told, description=f"{told.capitalize()}.")
        key.add_argument("key_kind", choices=tuple(_KEYS), help="kind of the key")
        key.add_argument("file", type=Path, help="file of the seed, which only its owner can read")
        told = "Run a bridge until Ctrl-C, with the settings lattice.*."
        bridge = words.add_parser("bridge", help="run a bridge until Ctrl-C", description=told)
        bridge.add_argument(
            "--relay", required=True, metavar="URL", help="relay: ws://host:port or wss://host"
        )
        bridge.add_argument(
            "--twins",
            metavar="URL",
            help="operator site that has the registry; required with twins.source = registry",
        )
        told = "Run a monitor until Ctrl-C, with the settings lattice.*."
        monitor = words.add_parser("monitor", help="run a monitor until Ctrl-C", description=told)
        for kind, own in (("bridge", bridge), ("monitor", monitor)):
            own.set_defaults(kind=kind)
            own.add_argument(
                "--embedded", action="store_true", help="use the keys of an embedded relay"
            )

    def run(self, options: dict[str, Any]) -> None:
        """Carry out the command; a process of the lattice replaces this one."""
        if options.get("key_kind"):
            self._key(options["key_kind"], options["file"])
            return
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

    def _key(self, kind: str, file: Path) -> None:
        try:
            public = own_keys.key_in(file, _KEYS[kind])
        except (KeyFormatError, OSError, UnicodeDecodeError) as error:
            raise CommandError(f"{file}: {getattr(error, 'strerror', None) or error}") from None
        self.stdout.write(public)

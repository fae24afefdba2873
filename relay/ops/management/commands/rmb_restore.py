"""`manage.py rmb_restore`: put a backup into an empty database."""

from __future__ import annotations

import json
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from dataclasses import asdict
from pathlib import Path
from typing import Any

from relay.access import faces
from relay.access.actor import of_command
from relay.ops import backup, pending
from relay.ops.command import RelayCommand
from relay.ops.management.commands.rmb_backup import summary

DESCRIPTION = """\
Put a backup into an empty database: all of it, or nothing. Then what the database holds is compared
with what the file held, row by row; if it differs, everything is undone.

The database may be of another kind than the one the backup was made of. It must be new:

  RMB_DATA__DIR=new manage.py migrate
  RMB_DATA__DIR=new manage.py rmb_restore relay.zip

The audit log is verified before anything is restored: this site needs the secret key that signed
it. Without, nothing happens but that you are told how to set it; it is in backups made with
--secrets.

Running relays hear of twins, limits and decisions on other relays at once. Settings are not put
back: `unzip -p FILE settings/rmb.toml` shows the file they were in.
"""


class Command(RelayCommand):
    """Verified before, and after."""

    help = "Put a backup into an empty database, and verify it."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.formatter_class = RawDescriptionHelpFormatter
        parser.description = DESCRIPTION
        parser.add_argument("file", type=Path, help="a backup of rmb_backup")
        parser.add_argument(
            "--unverified-log",
            action="store_true",
            help="although the audit log cannot be verified with the secret key of this site",
        )
        parser.add_argument("--json", action="store_true", help="one JSON object")

    def handle(self, *args: Any, file: Path, unverified_log: bool, **options: Any) -> None:
        with faces.in_command():
            manifest = backup.restore(
                file, actor=of_command(), unverified_log=unverified_log, say=self.stderr.write
            )
        if options["json"]:
            self.stdout.write(json.dumps(asdict(manifest), indent=2))
        else:
            self.stdout.write(f"restored and verified: {summary(manifest)}")
        pending.mark_all()
        pending.settle()
        if pending.waiting():
            self.stderr.write(pending.TEXT)

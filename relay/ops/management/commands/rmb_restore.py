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
Restore a backup into an empty database. The command then compares database and file row by row; if
they differ, it undoes everything.

The database may be of another kind than the one of the backup. It must be new:

  RMB_DATA__DIR=new manage.py migrate
  RMB_DATA__DIR=new manage.py rmb_restore relay.zip

The command verifies the audit log before it restores anything. For this the site needs the secret
key that signed the log; backups made with --secrets contain it. Without the key nothing is
restored, and the command prints how to set it.

Running relays take over twins, limits and decisions about partner relays at once. Settings are not
restored: `unzip -p FILE settings/rmb.toml` prints the settings file of the backup.
"""


class Command(RelayCommand):
    """Verified before, and after."""

    help = "Restore a backup into an empty database, and verify it."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.formatter_class = RawDescriptionHelpFormatter
        parser.description = DESCRIPTION
        parser.add_argument("file", type=Path, help="backup that rmb_backup wrote")
        parser.add_argument(
            "--unverified-log",
            action="store_true",
            help="restore even if this site's secret key cannot verify the audit log",
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

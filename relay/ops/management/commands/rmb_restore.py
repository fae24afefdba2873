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
Restore a backup into an empty database. The command then compares the database with the file, row
by row. If they differ, it restores nothing.

The backup of a SQLite database can be restored into PostgreSQL, and vice versa. The database must
be new:

  RMB_DATA__DIR=new manage.py migrate
  RMB_DATA__DIR=new manage.py rmb_restore relay.zip

The command first verifies the audit log. For this the site needs the secret key that signed the
log; backups written with --secrets contain it. If the key is missing, the command restores nothing
and prints how to set it.

Running relays use the restored twins, limits and decisions about partner relays at once. Settings
are not restored: `unzip -p FILE settings/rmb.toml` prints the settings file of the backup.
"""


class Command(RelayCommand):
    """Restore a backup that is verified before and after."""

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

"""`manage.py rmb_backup`: write a backup, or prove that one can be restored."""

from __future__ import annotations

import json
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from dataclasses import asdict
from pathlib import Path
from typing import Any

from relay.access import faces
from relay.access.actor import of_command
from relay.ops import backup
from relay.ops.backup_file import Manifest
from relay.ops.command import RelayCommand

DESCRIPTION = """\
Write all tables of the database and the settings into one file, while the relay runs. The file
does not contain waiting messages: they are in Redis.

The file contains password hashes and keys of second factors, so only its owner can read it. With
--secrets it also contains the site's secret keys: without them, another site cannot verify the
audit log after a restore.

  rmb_backup FILE            write a backup to a new file
  rmb_backup FILE --verify   restore a backup into a temporary SQLite database (in TMPDIR), and
                             compare it with the file
"""


class Command(RelayCommand):
    """Write or verify one backup file, completely or not at all."""

    help = "Write a backup of database and settings, or verify one."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.formatter_class = RawDescriptionHelpFormatter
        parser.description = DESCRIPTION
        parser.add_argument("file", type=Path, help="the backup, such as relay.zip")
        parser.add_argument(
            "--verify",
            action="store_true",
            help="restore an existing backup into a temporary database",
        )
        parser.add_argument(
            "--no-history",
            action="store_true",
            help="omit ended sessions and the history of metrics",
        )
        parser.add_argument("--secrets", action="store_true", help="include the site's secret keys")
        parser.add_argument("--json", action="store_true", help="one JSON object")

    def handle(self, *args: Any, file: Path, **options: Any) -> None:
        with faces.in_command():
            if options["verify"]:
                manifest = backup.verify(file, say=self.stderr.write)
            else:
                manifest = backup.make(
                    file,
                    actor=of_command(),
                    history=not options["no_history"],
                    secrets=options["secrets"],
                    say=self.stderr.write,
                )
        if options["json"]:
            self.stdout.write(json.dumps({"file": str(file), **asdict(manifest)}, indent=2))
        else:
            self.stdout.write(f"{file}: {summary(manifest)}")


def summary(manifest: Manifest) -> str:
    """Return one line about a backup."""
    rows = sum(table.rows for table in manifest.tables)
    secrets = "with" if manifest.secrets else "without"
    return (
        f"{rows:,} rows in {len(manifest.tables)} tables, made {manifest.made} by release "
        f"{manifest.release}, {secrets} the secret key"
    )

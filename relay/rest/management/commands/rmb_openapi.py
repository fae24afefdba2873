"""`manage.py rmb_openapi`: the OpenAPI document of the REST API."""

from __future__ import annotations

from argparse import ArgumentParser, RawDescriptionHelpFormatter
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from relay.ops import whole_file

DESCRIPTION = """\
Print the OpenAPI 3.1 document of the REST API, which the relay serves as /api/v1/openapi.json.

  rmb_openapi                               print the document
  rmb_openapi --output openapi.json         write the document to a file
  rmb_openapi --check openapi.json          exit with code 1 if the file differs
"""


class Command(BaseCommand):
    """Command that needs neither Redis nor the database."""

    help = "Print the OpenAPI document of the REST API."
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.formatter_class = RawDescriptionHelpFormatter
        parser.description = DESCRIPTION
        what = parser.add_mutually_exclusive_group()
        what.add_argument("--output", type=Path, metavar="FILE", help="write the document to FILE")
        what.add_argument(
            "--check", type=Path, metavar="FILE", help="compare the document with FILE"
        )

    def handle(self, *args: Any, output: Path | None, check: Path | None, **options: Any) -> None:
        from relay.rest.api import api  # importing ninja takes a second, which other commands avoid

        try:
            if output is not None:
                with whole_file.written(output) as file:
                    file.write(api.document)
            elif check is None:
                self.stdout.write(api.document.decode(), ending="")
            elif check.read_bytes() != api.document:
                raise CommandError(f"{check} does not match the API: regenerate it with --output")
        except OSError as error:
            raise CommandError(str(error)) from None

"""`manage.py rmb_doctor`: what is wrong with this installation, and what to do about it."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections import Counter
from dataclasses import asdict
from typing import Any

from django.core.management.base import BaseCommand

from relay.ops import doctor
from relay.ops.doctor import Finding, Level
from relay.ops.printable import shown

DESCRIPTION = """\
Check everything the relay depends on: the machine (open files, memory, disk), settings,
certificates, Redis, the database, the listener, workers, Celery, partner relays and the chain.

The doctor changes nothing and works before the relay's first start and while it runs. Run it with
the same configuration file and environment as the relay (RMB_CONFIG, RMB_DATA__DIR, ...).

exit code: 0 no failures (there may be warnings), 1 failures
"""

LABELS = {Level.OK: "ok", Level.WARNING: "WARNING", Level.FAULT: "FAULT"}


class Command(BaseCommand):
    """Print findings as they are made: a check may wait for a server that does not answer."""

    help = "Check everything the relay depends on, and print remedies."
    # The doctor runs them itself, and continues after an error.
    requires_system_checks: list[str] = []  # noqa: RUF012 - as Django declares it

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.formatter_class = RawDescriptionHelpFormatter
        parser.description = DESCRIPTION
        parser.add_argument("--json", action="store_true", help="one JSON object")
        parser.add_argument("--quiet", action="store_true", help="print only warnings and failures")

    def handle(self, *args: Any, **options: Any) -> None:
        found = []
        for finding in doctor.examine():
            found.append(finding)
            if not options["json"] and not (options["quiet"] and finding.level is Level.OK):
                self._tell(finding)
        counts = Counter(finding.level for finding in found)
        if options["json"]:
            document = {
                "faults": counts[Level.FAULT],
                "warnings": counts[Level.WARNING],
                "findings": [asdict(finding) for finding in found],
            }
            self.stdout.write(json.dumps(document, indent=2))
        else:
            self.stdout.write(
                f"{_count(counts[Level.FAULT], 'fault')}, "
                f"{_count(counts[Level.WARNING], 'warning')}, {counts[Level.OK]} ok"
            )
        if counts[Level.FAULT]:
            sys.exit(1)

    def _tell(self, finding: Finding) -> None:
        style = {
            Level.OK: self.style.SUCCESS,
            Level.WARNING: self.style.WARNING,
            Level.FAULT: self.style.ERROR,
        }[finding.level]
        self.stdout.write(f"{style(f'{LABELS[finding.level]:<8}')} {shown(finding.text)}")
        if finding.remedy:
            self.stdout.write(f"         -> {finding.remedy}")
        self.stdout.flush()


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
